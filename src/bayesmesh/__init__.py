"""Bayesmesh: large-scale Bayesian experiments on JAX, run as a Snakemake workflow or called from Python."""

from bayesmesh.notebook.calls import compare, open, recommend, sample, verdict

__version__ = "0.1.0"

__all__ = ["compare", "open", "recommend", "sample", "verdict"]
