rule recommend:
    input:
        "results/{experiment}/posterior.zarr",
        lambda wildcards: PLAN.data_layout(wildcards.experiment).sharded,
    output:
        report(
            "results/{experiment}/recommendations/top.csv",
            caption="../report/recommendations.rst",
            category=lambda wildcards: PLAN.category(wildcards.experiment),
            subcategory="{experiment}",
        ),
        "results/{experiment}/recommendations/genres.csv",
        "results/{experiment}/recommendations/users.csv",
        "results/{experiment}/recommendations/scores.csv",
    log:
        "results/{experiment}/logs/recommend.log",
    benchmark:
        "results/{experiment}/benchmarks/recommend.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    threads: PLAN.cores
    resources:
        gpu=0,
    params:
        config=PLAN.spec("recommend"),
        code=PLAN.code("recommend"),
    message:
        "Recommend films in {wildcards.experiment}"
    shell:
        "bayesmesh recommend --spec {params.config:q} --code {params.code:q} --cores {threads}"
        " --gpus {resources.gpu:q} --log {log:q}"
