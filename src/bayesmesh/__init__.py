"""Bayesmesh: large-scale Bayesian experiments on JAX, run as a Snakemake workflow."""

__version__ = "0.1.0"
