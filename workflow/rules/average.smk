rule average:
    input:
        "results/{experiment}/posterior.zarr",
        lambda wildcards: PLAN.data_layout(wildcards.experiment).sharded,
    output:
        report(
            "results/{experiment}/averaging/scores.csv",
            caption="../report/scores.rst",
            category=lambda wildcards: PLAN.category(wildcards.experiment),
            subcategory="{experiment}",
        ),
        directory("results/{experiment}/averaging/predictions.zarr"),
    log:
        "results/{experiment}/logs/average.log",
    benchmark:
        "results/{experiment}/benchmarks/average.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    threads: PLAN.cores
    resources:
        gpu=0,
    params:
        config=PLAN.spec("average"),
        code=PLAN.code("average"),
    message:
        "Average the predictions of {wildcards.experiment} over its draws"
    shell:
        "bayesmesh average --spec {params.config:q} --code {params.code:q} --cores {threads}"
        " --gpus {resources.gpu:q} --log {log:q}"
