"""Reproduce the published pieces: benchmarks, claims, studies and their pages; imported by the command line only."""
