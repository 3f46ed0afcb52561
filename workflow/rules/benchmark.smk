# Outside the flow: compare implementations that take turns, in one run on one machine.
from bayesmesh.reproduction import reproduction_rules as reproduction


wildcard_constraints:
    benchmark="|".join(reproduction.benchmark_names()) or "none",


rule benchmark:
    output:
        report(
            update("results/benchmarks/{benchmark}.csv"),
            caption="../report/benchmark.rst",
            category="Benchmarks",
        ),
        report(
            update("results/benchmarks/{benchmark}-ratios.csv"),
            caption="../report/benchmark.rst",
            category="Benchmarks",
        ),
    log:
        "results/benchmarks/logs/{benchmark}.log",
    benchmark:
        "results/benchmarks/jobs/{benchmark}.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    # All cores, so that no two benchmarks run at the same time.
    threads: lambda wildcards: PLAN.cores
    params:
        config=reproduction.benchmark_settings(PLAN),
        code=lambda wildcards: reproduction.code_of_benchmark(wildcards.benchmark),
    message:
        "Benchmark {wildcards.benchmark}"
    shell:
        "bayesmesh benchmark {wildcards.benchmark:q} --settings {params.config:q} --cores {threads} --code {params.code:q} --log {log:q}"


rule benchmark_page:
    input:
        lambda wildcards: reproduction.benchmark_tables(PLAN),
    output:
        report(
            update("results/benchmarks/index.html"),
            caption="../report/benchmark.rst",
            category="Benchmarks",
        ),
    log:
        "results/benchmarks/logs/page.log",
    benchmark:
        "results/benchmarks/jobs/page.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config="page",
        code=reproduction.code_of_benchmark_page(),
    message:
        "Write the page of benchmarks"
    shell:
        "bayesmesh benchmark {params.config:q} --code {params.code:q} --log {log:q}"


rule benchmarks:
    input:
        reproduction.benchmark_layout(PLAN).page,
