"""Comparisons in one run: ratios against a named contender, never an absolute time."""
