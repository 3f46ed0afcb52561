"""Change how Snakemake treats locks, retries, outputs, failures and the jobs of a server of forks."""
