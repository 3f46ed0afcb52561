rule assemble:
    input:
        PLAN.inputs("assemble"),
    # The list of the sha256 of its files stands for the posterior, which Snakemake would copy before each run.
    output:
        update("results/{experiment}/posterior.sha256"),
        update("results/seals/{experiment}/assemble.json"),
    log:
        "results/{experiment}/logs/assemble.log",
    conda:
        "../../envs/bayesmesh.yaml"
    threads: lambda wildcards: PLAN.share(wildcards.experiment, PLAN.cores)
    resources:
        gpu=0,
    params:
        config=PLAN.trigger("assemble"),
        spec=PLAN.spec("assemble"),
        code=PLAN.code("assemble"),
    message:
        "Assemble the posterior of {wildcards.experiment}"
    shell:
        "bayesmesh assemble --spec {params.spec:q} --code {params.code:q} --cores {threads}"
        " --gpus {resources.gpu:q} --log {log:q}"
