# Segments and checkpoints are not outputs, because Snakemake removes the outputs of a failed job. The output is a small
# manifest, written last.
rule sample:
    input:
        PLAN.inputs("sample"),
    output:
        update("results/{experiment}/chains/{group}.json"),
        update("results/seals/{experiment}/sample-{group}.json"),
    log:
        "results/{experiment}/logs/sample-{group}.log",
    conda:
        "../../envs/bayesmesh.yaml"
    threads: lambda wildcards: PLAN.threads(wildcards.experiment, PLAN.cores)
    # A profile may set GPUs per job, or nodes x processes. Memory and time are evaluated again once the audit exists.
    resources:
        gpu=0,
        processes=lambda wildcards: PLAN.processes(wildcards.experiment),
        mem_mb=PLAN.sample_memory_mb,
        runtime=PLAN.sample_minutes,
    params:
        config=PLAN.trigger("sample"),
        spec=PLAN.spec("sample"),
        code=PLAN.code("sample"),
    message:
        "Sample {wildcards.experiment}, {wildcards.group}"
    shell:
        # exec replaces the shell, so that signals to the job reach the sampler.
        "exec bayesmesh sample --spec {params.spec:q} --group {wildcards.group:q} --code {params.code:q}"
        " --cores {threads} --gpus {resources.gpu:q} --processes {resources.processes:q} --log {log:q}"
