"""Change how Snakemake treats locks, retries, outputs, failures and stop requests."""
