rule diagnose:
    input:
        PLAN.inputs("diagnose"),
    output:
        report(
            update("results/{experiment}/diagnostics/summary.csv"),
            caption="../report/summary.rst",
            category=lambda wildcards: PLAN.category(wildcards.experiment),
            subcategory="{experiment}",
            labels={"result": "summary"},
        ),
        report(
            update("results/{experiment}/diagnostics/verdict.json"),
            caption="../report/verdict.rst",
            category=lambda wildcards: PLAN.category(wildcards.experiment),
            subcategory="{experiment}",
            labels={"result": "verdict"},
        ),
        update("results/seals/{experiment}/diagnose.json"),
    log:
        "results/{experiment}/logs/diagnose.log",
    # The verdict comes before analyses.
    priority: 1
    conda:
        "../../envs/bayesmesh.yaml"
    threads: lambda wildcards: PLAN.share(wildcards.experiment, PLAN.cores)
    params:
        config=PLAN.trigger("diagnose"),
        spec=PLAN.spec("diagnose"),
        code=PLAN.code("diagnose"),
    message:
        "Diagnose {wildcards.experiment}"
    shell:
        "bayesmesh diagnose --spec {params.spec:q} --code {params.code:q} --cores {threads} --log {log:q}"
