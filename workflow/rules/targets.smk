# Targets by name: `snakemake quickstart`, `snakemake reproduce`, `snakemake benchmarks`, `snakemake <experiment>`.
rule quickstart:
    input:
        "results/index.html",


rule reproduce:
    input:
        PLAN.reproduced(),
        "results/reproduction/claims.csv",
        "results/index.html",


rule benchmarks:
    input:
        PLAN.benchmark_layout.page,


for _name in PLAN.experiments:

    rule:
        name:
            _name
        input:
            PLAN.layout(_name).page,
