"""Change how Snakemake treats locks, retries, outputs, failures and the jobs of the fork server."""
