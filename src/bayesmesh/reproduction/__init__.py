"""Reproduce published results; only the command line imports this folder."""
