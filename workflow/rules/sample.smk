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
    threads: lambda wildcards: PLAN.threads(wildcards.experiment, PLAN.cores)
    # A profile may want GPUs of its own for each job, or nodes x processes. The others are asked again once the audit
    # is there.
    resources:
        gpu=0,
        processes=lambda wildcards: PLAN.processes(wildcards.experiment),
        mem_mb=PLAN.sample_memory_mb,
        runtime=PLAN.sample_minutes,
    params:
        config=PLAN.spec("sample"),
        code=PLAN.code("sample"),
    message:
        "Sample {wildcards.experiment}, {wildcards.group}"
    shell:
        # In the shell's place, so that a signal to the job reaches the sampler.
        "exec bayesmesh sample --spec {params.config:q} --group {wildcards.group:q} --code {params.code:q}"
        " --cores {threads} --gpus {resources.gpu:q} --processes {resources.processes:q} --log {log:q}"
