# Benchmarks, claims and studies: part of the repository's Snakefile, and of no other project's.
import sys

from bayesmesh.errors import UserError
from bayesmesh_reproduction import rules as reproduction

try:
    REPRODUCTION = reproduction.read_settings(PLAN)
    set_aside_lost(reproduction.requested_jobs(PLAN, REPRODUCTION), workflow)
except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


wildcard_constraints:
    benchmark="|".join(reproduction.list_benchmarks()),


# Not submitted to a cluster: they take seconds.
localrules:
    benchmark_page,
    claims,
    reproduce,


# Compare implementations that take turns, in one run on one machine.
rule benchmark:
    output:
        report(
            update("results/benchmarks/{benchmark}.csv"),
            caption="captions/benchmark.rst",
            category="Benchmarks",
        ),
        report(
            update("results/benchmarks/{benchmark}-ratios.csv"),
            caption="captions/benchmark.rst",
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
        config=REPRODUCTION.benchmarks.model_dump_json(),
        code=lambda wildcards: reproduction.code_of_benchmark(wildcards.benchmark),
    message:
        "Benchmark {wildcards.benchmark}"
    shell:
        "python -m bayesmesh_reproduction benchmark {wildcards.benchmark:q} --settings {params.config:q} --cores {threads} --code {params.code:q} --log {log:q}"


rule benchmark_page:
    input:
        lambda wildcards: reproduction.benchmark_tables(PLAN),
    output:
        report(
            update("results/benchmarks/index.html"),
            caption="captions/benchmark.rst",
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
        code=reproduction.code("pages/benchmarks.py", "pages/templates/benchmarks.html"),
    message:
        "Write the page of benchmarks"
    shell:
        "python -m bayesmesh_reproduction benchmark {params.config:q} --code {params.code:q} --log {log:q}"


rule benchmarks:
    input:
        rules.benchmark_page.output,


# Compare published figures with ours, from existing results; missing ones are `not run`. The params make it run again when
# a result or the code changes. Results are inputs only in `reproduce`; otherwise Snakemake would remake them.
rule claims:
    input:
        lambda wildcards: reproduction.claims_inputs(PLAN, REPRODUCTION),
    output:
        report(
            update("results/reproduction/claims.csv"),
            caption="captions/claims.rst",
            category="Claims",
        ),
        report(
            update("results/reproduction/index.html"),
            caption="captions/claims.rst",
            category="Claims",
        ),
    log:
        "results/logs/claims.log",
    benchmark:
        "results/benchmarks/jobs/claims.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config=lambda wildcards: reproduction.claims_digest(PLAN),
        code=reproduction.code(
            "claims/*", "pages/claims.py", "pages/templates/claims.html"
        ),
    message:
        "Check the published claims against stored results"
    shell:
        "python -m bayesmesh_reproduction claims --code {params.code:q} --log {log:q}"


# Ends with an error if a claim failed, after everything has run.
rule reproduce:
    input:
        lambda wildcards: reproduction.reproduced(PLAN, REPRODUCTION),
        "results/reproduction/claims.csv",
    log:
        "results/logs/reproduce.log",
    retries: 0
    conda:
        "../../envs/bayesmesh.yaml"
    message:
        "Fail if a published claim failed"
    shell:
        "python -m bayesmesh_reproduction claims --gate --log {log:q}"


# Measure what a choice of method costs, on known posteriors.
rule study:
    output:
        report(
            update("results/studies/stopping.csv"),
            caption="captions/study.rst",
            category="Studies",
        ),
        report(
            update("results/studies/stopping.svg"),
            caption="captions/study.rst",
            category="Studies",
        ),
    log:
        "results/studies/logs/stopping.log",
    benchmark:
        "results/studies/benchmarks/stopping.tsv"
    conda:
        "../../envs/bayesmesh.yaml"
    params:
        config="stopping",
        code=reproduction.code("studies/*.py"),
    message:
        "Measure the bias of stopping by a rule"
    shell:
        "python -m bayesmesh_reproduction study {params.config:q} --code {params.code:q} --log {log:q}"
