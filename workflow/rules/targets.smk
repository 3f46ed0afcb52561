# Targets by name: `snakemake quickstart`, `snakemake reproduce`, `snakemake benchmarks`, `snakemake <experiment>`.
rule quickstart:
    input:
        "results/index.html",


for _name in PLAN.targets:

    rule:
        name:
            _name
        input:
            PLAN.layout(_name).page,
