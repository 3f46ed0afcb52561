# Outside the flow: measure what a choice of method costs, on known posteriors.
from bayesmesh.reproduction import reproduction_rules as reproduction


rule study:
    output:
        report(
            update("results/studies/stopping.csv"),
            caption="../report/study.rst",
            category="Studies",
        ),
        report(
            update("results/studies/stopping.svg"),
            caption="../report/study.rst",
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
        code=reproduction.code_of_study(),
    message:
        "Measure the bias of stopping by a rule"
    shell:
        "bayesmesh study {params.config:q} --code {params.code:q} --log {log:q}"
