rule assemble:
    input:
        lambda wildcards: PLAN.manifests(wildcards.experiment),
        lambda wildcards: PLAN.data_layout(wildcards.experiment).sharded,
    output:
        directory("results/{experiment}/posterior.zarr"),
    log:
        "results/{experiment}/logs/assemble.log",
    benchmark:
        "results/{experiment}/benchmarks/assemble.tsv"
    message:
        "Assemble the posterior of {wildcards.experiment}"
    params:
        config=PLAN.spec("assemble"),
        code=PLAN.code("assemble"),
    threads: workflow.cores
    conda:
        "../../envs/bayesmesh.yaml"
    shell:
        "bayesmesh assemble --spec {params.config:q} --code {params.code:q} --cores {threads} --log {log:q}"
