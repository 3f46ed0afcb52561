"""Everything specific to Slurm: its commands, its queue, the Snakemake executor."""
