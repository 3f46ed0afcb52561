"""Render the pages of benchmarks and claims."""
