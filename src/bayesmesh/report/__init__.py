"""Render the page of an experiment and the index of all experiments from stored files.

Nothing here imports JAX, TFP or Snakemake. A file that is absent leaves its section out; a file that is damaged is a
`StoreError` that names it.
"""
