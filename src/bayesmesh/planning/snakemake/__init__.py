"""Change how Snakemake treats locks, retries, outputs and the jobs of a server of forks."""
