"""Read and validate the configuration: one pydantic model per top-level key, and the registry of components.

Nothing here imports JAX: Snakemake parses the workflow with it.
"""
