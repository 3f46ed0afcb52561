# Published figures beside ours, out of what is there: what is not is `not run`. Another result, another claims.yaml and
# other code run it again. It has inputs only when everything is reproduced: as inputs, results would be made again first.
from bayesmesh.reproduction import planning as reproduction


rule claims:
    input:
        lambda wildcards: reproduction.claims_inputs(PLAN),
    output:
        report(
            "results/reproduction/claims.csv",
            caption="../report/claims.rst",
            category="Claims",
        ),
        report(
            "results/reproduction/index.html",
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
        "Hold the published claims against what is stored"
    shell:
        "bayesmesh claims --code {params.code:q} --log {log:q}"


# A claim that fails ends the run with an error, once everything is there.
rule reproduce:
    input:
        reproduction.reproduced(PLAN),
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
