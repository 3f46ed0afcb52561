"""Render the page of an experiment and the index of all experiments from stored files.

Nothing here imports JAX, TFP or Snakemake. If a file is absent, its section is left out. If a file is damaged, a
`StoreError` names it.
"""
