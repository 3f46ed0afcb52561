# Targets by name: `snakemake quickstart`, `snakemake reproduce`, `snakemake benchmarks`, `snakemake <experiment>`.
rule quickstart:
    input:
        "results/index.html",


# A claim that fails ends the run with an error, once everything is there.
rule reproduce:
    input:
        PLAN.reproduced(),
        "results/reproduction/claims.csv",
        "results/index.html",
    log:
        "results/logs/reproduce.log",
    retries: 0
    conda:
        "../../envs/bayesmesh.yaml"
    message:
        "Hold the claims to their gate"
    shell:
        "bayesmesh claims --gate --log {log:q}"


rule benchmarks:
    input:
        PLAN.benchmark_layout.page,


for _name in PLAN.experiments:

    rule:
        name:
            _name
        input:
            PLAN.layout(_name).page,
