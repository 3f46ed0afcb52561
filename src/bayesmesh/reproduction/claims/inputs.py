"""The folders of results that claims read."""

from __future__ import annotations

__all__ = ["FOLDERS"]

FOLDERS = ("benchmarks", "hidden_markov", "mnist", "mnist-published", "movielens", "movielens-published")
