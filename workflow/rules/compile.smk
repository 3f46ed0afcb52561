rule compile:
    input:
        PLAN.inputs("compile"),
    output:
        update("results/{experiment}/program/audit.json"),
        update("results/seals/{experiment}/compile.json"),
    log:
        "results/{experiment}/logs/compile.log",
    conda:
        "../../envs/bayesmesh.yaml"
    # The same devices as sampling, so that the cached program is the one that sampling runs.
    threads: lambda wildcards: PLAN.threads(wildcards.experiment, PLAN.cores)
    # `later` is checked before sampling. It is not a param, so changing it does not recompile.
    # A profile may set GPUs per job, or nodes x processes.
    resources:
        gpu=0,
        processes=lambda wildcards: PLAN.processes(wildcards.experiment),
        later=lambda wildcards: PLAN.later(wildcards.experiment),
    params:
        config=PLAN.trigger("compile"),
        spec=PLAN.spec("compile"),
        code=PLAN.code("compile"),
    message:
        "Compile the programs of {wildcards.experiment}"
    shell:
        "bayesmesh compile --spec {params.spec:q} --code {params.code:q} --later={resources.later:q}"
        " --cores {threads} --gpus {resources.gpu:q} --processes {resources.processes:q} --log {log:q}"
