"""The configuration of an experiment: one pydantic model per top-level key, loading and cross-checks.

Nothing here imports JAX: Snakemake parses the workflow with it.
"""
