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


rule benchmark_page:
    input:
        [PLAN.benchmark_layout.table(name) for name in PLAN.benchmarks()],
    output:
        report(
            "results/benchmarks/index.html",
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
        code=PLAN.code_of("report"),
    message:
        "Write the page of all benchmarks"
    shell:
        "bayesmesh benchmark {params.config:q} --code {params.code:q} --log {log:q}"
