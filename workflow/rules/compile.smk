rule compile:
    input:
        lambda wildcards: PLAN.data_layout(wildcards.experiment).sharded,
    output:
        "results/{experiment}/program/audit.json",
    log:
        "results/{experiment}/logs/compile.log",
    benchmark:
        "results/{experiment}/benchmarks/compile.tsv"
    message:
        "Compile the programs of {wildcards.experiment}"
    params:
        config=PLAN.spec("compile"),
        code=PLAN.code("compile"),
    # The same devices as sampling, or the cache would hold another program.
    threads: lambda wildcards: PLAN.threads(wildcards.experiment, workflow.cores)
    conda:
        "../../envs/bayesmesh.yaml"
    shell:
        "bayesmesh compile --spec {params.config:q} --code {params.code:q} --cores {threads} --log {log:q}"
