rule fetch:
    input:
        PLAN.inputs("fetch"),
    output:
        update("results/data/{dataset}/fetched.json"),
        update("results/seals/data/{dataset}/fetch.json"),
    log:
        "results/data/{dataset}/logs/fetch.log",
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=PLAN.trigger("fetch"),
        spec=PLAN.spec("fetch"),
        code=PLAN.code("fetch"),
        files=PLAN.input_files,
    message:
        "Fetch dataset {wildcards.dataset}"
    shell:
        "bayesmesh fetch --spec {params.spec:q} --code {params.code:q} --log {log:q}"
