rule shard:
    input:
        PLAN.inputs("shard"),
    output:
        update("results/data/{dataset}/{split}/sharded.json"),
        update("results/seals/data/{dataset}/{split}/shard.json"),
    log:
        "results/data/{dataset}/{split}/logs/shard.log",
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=PLAN.trigger("shard"),
        spec=PLAN.spec("shard"),
        code=PLAN.code("shard"),
    message:
        "Shard dataset {wildcards.dataset}, split {wildcards.split}"
    shell:
        "bayesmesh shard --spec {params.spec:q} --code {params.code:q} --log {log:q}"
