"""Generalised linear models from a formula, with group-level effects."""
