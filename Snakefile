include: "workflow/Snakefile"


# Here and not there: Snakemake forgets the default target of an included file.
rule all:
    input:
        "results/index.html",
