# Compare published figures with ours, from existing results; missing ones are `not run`. The params make it run again when
# a result or the code changes. Results are inputs only in `reproduce`; otherwise Snakemake would remake them.
from bayesmesh.reproduction import reproduction_rules as reproduction


rule claims:
    input:
        lambda wildcards: reproduction.claims_inputs(PLAN),
    output:
        report(
            update("results/reproduction/claims.csv"),
            caption="../report/claims.rst",
            category="Claims",
        ),
        report(
            update("results/reproduction/index.html"),
            caption="../report/claims.rst",
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
        code=reproduction.code_of_claims(),
    message:
        "Check the published claims against stored results"
    shell:
        "bayesmesh claims --code {params.code:q} --log {log:q}"


# Ends with an error if a claim failed, after everything has run.
rule reproduce:
    input:
        lambda wildcards: reproduction.reproduced(PLAN),
        "results/reproduction/claims.csv",
        "results/index.html",
    log:
        "results/logs/reproduce.log",
    retries: 0
    conda:
        "../../envs/bayesmesh.yaml"
    message:
        "Fail if a published claim failed"
    shell:
        "bayesmesh claims --gate --log {log:q}"
