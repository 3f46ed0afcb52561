"""Everything specific to Slurm: its variables, its commands, the Snakemake executor."""
