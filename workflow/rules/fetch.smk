rule fetch:
    output:
        "results/data/{dataset}/fetched.json",
    log:
        "results/data/{dataset}/logs/fetch.log",
    benchmark:
        "results/data/{dataset}/benchmarks/fetch.tsv"
    message:
        "Fetch dataset {wildcards.dataset}"
    params:
        config=PLAN.spec("fetch"),
        code=PLAN.code("fetch"),
    conda:
        "../../envs/bayesmesh.yaml"
    shell:
        "bayesmesh fetch --spec {params.config:q} --code {params.code:q} --log {log:q}"
