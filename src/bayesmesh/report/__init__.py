"""The page of an experiment and the index of all: tables and figures out of the files of the stages before.

Nothing here imports JAX, TFP or Snakemake. A file that is absent leaves its section out; a file that is damaged is a
`StoreError` that names it.
"""
