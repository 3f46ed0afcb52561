"""Generalised linear models from a formula, with effects of groups."""
