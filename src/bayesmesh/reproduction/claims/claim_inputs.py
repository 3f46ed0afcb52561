"""The folders of results that claims read."""

from __future__ import annotations

FOLDERS = ("benchmarks", "hidden_markov", "mnist", "mnist-published", "movielens", "movielens-published")
