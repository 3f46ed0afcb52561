# Compare the members of a sweep. Each member is an experiment, whose jobs are those of any other.
rule sweep:
    input:
        lambda wildcards: overviews.member_pages(PLAN, wildcards.sweep),
    output:
        report(
            update("results/{sweep}/comparison.csv"),
            caption="../report/sweep.rst",
            category="Sweeps",
            subcategory="{sweep}",
            labels={"result": "table"},
        ),
        report(
            update("results/{sweep}/comparison.html"),
            caption="../report/sweep.rst",
            category="Sweeps",
            subcategory="{sweep}",
            labels={"result": "page"},
        ),
        update("results/seals/{sweep}/comparison.json"),
    log:
        "results/{sweep}/logs/comparison.log",
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=lambda wildcards: overviews.sweep_settings(PLAN, wildcards.sweep),
        code=PLAN.code_of("report"),
    message:
        "Compare the members of {wildcards.sweep}"
    shell:
        "bayesmesh sweep {wildcards.sweep:q} --code {params.code:q} --log {log:q}"
