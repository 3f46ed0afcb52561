"""Explain failed jobs, stop requests and unknown targets of Snakemake."""
