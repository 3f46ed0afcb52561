"""Reproduce published results, from a checkout: benchmarks, claims and studies, which no wheel holds."""
