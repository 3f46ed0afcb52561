include: "workflow/Snakefile"
include: "src/bayesmesh_reproduction/rules.smk"


# Defined here because Snakemake ignores the default target of an included file.
rule all:
    input:
        lambda wildcards: PLAN.overview(),
