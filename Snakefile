include: "workflow/Snakefile"


# Defined here because Snakemake ignores the default target of an included file.
rule all:
    input:
        "results/index.html",
