# Segments and checkpoints are never outputs: Snakemake removes those of a failed job. The output is a small manifest,
# written last.
rule sample:
    input:
        lambda wildcards: PLAN.data_layout(wildcards.experiment).sharded,
        "results/{experiment}/program/audit.json",
    output:
        "results/{experiment}/chains/{group}.json",
    log:
        "results/{experiment}/logs/sample-{group}.log",
    benchmark:
        "results/{experiment}/benchmarks/sample-{group}.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    threads: lambda wildcards: PLAN.threads(wildcards.experiment, workflow.cores)
    params:
        config=PLAN.spec("sample"),
        code=PLAN.code("sample"),
    message:
        "Sample {wildcards.experiment}, {wildcards.group}"
    shell:
        "bayesmesh sample --spec {params.config:q} --group {wildcards.group:q} --code {params.code:q}"
        " --cores {threads} --log {log:q}"
