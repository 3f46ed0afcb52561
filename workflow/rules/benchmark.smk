# No part of the flow: contenders in turns, in one run on one machine.
rule benchmark:
    output:
        report(
            "results/benchmarks/{benchmark}.csv",
            caption="../report/benchmark.rst",
            category="Benchmarks",
        ),
        report(
            "results/benchmarks/{benchmark}-ratios.csv",
            caption="../report/benchmark.rst",
            category="Benchmarks",
        ),
    log:
        "results/benchmarks/logs/{benchmark}.log",
    benchmark:
        "results/benchmarks/jobs/{benchmark}.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    # All cores, so that no two of them measure each other.
    threads: lambda wildcards: PLAN.cores
    params:
        config=PLAN.benchmark_settings(),
        code=PLAN.code_of_benchmark,
    message:
        "Benchmark {wildcards.benchmark}"
    shell:
        "bayesmesh benchmark {wildcards.benchmark:q} --settings {params.config:q} --cores {threads} --code {params.code:q} --log {log:q}"
