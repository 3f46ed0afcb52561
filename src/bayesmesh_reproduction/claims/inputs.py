"""The results that claims read."""

from __future__ import annotations

FOLDERS = ("benchmarks", "hidden_markov", "mnist", "mnist-published", "movielens", "movielens-published")
"""Folders of results."""

BENCHMARKS = ("compile_scaling", "hidden_markov", "metropolis", "primer", "tutorial")
"""Benchmarks with a published counterpart; the target `reproduce` runs no other."""
