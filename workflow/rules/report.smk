rule report:
    input:
        PLAN.inputs("report"),
    output:
        report(
            update("results/{experiment}/report.html"),
            caption="../report/page.rst",
            category=lambda wildcards: PLAN.category(wildcards.experiment),
            subcategory="{experiment}",
            labels={"result": "page"},
        ),
        update("results/{experiment}/ledger.csv"),
        update("results/seals/{experiment}/report.json"),
    log:
        "results/{experiment}/logs/report.log",
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=PLAN.trigger("report"),
        spec=PLAN.spec("report"),
        code=PLAN.code("report"),
    message:
        "Report {wildcards.experiment}"
    shell:
        "bayesmesh report --spec {params.spec:q} --code {params.code:q} --log {log:q}"


rule index:
    input:
        lambda wildcards: overviews.indexed_pages(PLAN),
    output:
        report(
            update("results/index.html"),
            caption="../report/index.rst",
            category="Overview",
            labels={"result": "all pages"},
        ),
        update("results/seals/index.json"),
    log:
        "results/logs/index.log",
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=lambda wildcards: overviews.index_settings(PLAN),
        code=PLAN.code_of("report"),
    message:
        "Write the index of all experiments"
    shell:
        "bayesmesh index --code {params.code:q} --log {log:q}"
