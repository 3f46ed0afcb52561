# Published figures beside ours, out of what is there: what is not is `not run`. Another result, another claims.yaml and
# other code run it again. It has inputs only when everything is reproduced: as inputs, results would be made again first.
rule claims:
    input:
        lambda wildcards: PLAN.claimed(),
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
        config=lambda wildcards: PLAN.claims_digest(),
        code=PLAN.code_of("claims"),
    message:
        "Hold the published claims against what is stored"
    shell:
        "bayesmesh claims --code {params.code:q} --log {log:q}"
