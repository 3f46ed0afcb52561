# `snakemake <experiment>`: the page of one experiment.
for _name in PLAN.targets:

    rule:
        name:
            _name
        input:
            PLAN.goal(_name),
