"""Everything specific to Slurm: a job step's variables, the queue, the Snakemake executor."""
