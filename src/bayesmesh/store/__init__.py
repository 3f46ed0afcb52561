"""Paths, arrays, segments and the posterior: everything that is written under ``results/``."""
