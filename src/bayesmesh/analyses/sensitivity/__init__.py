"""Measure how much each quantity depends on the prior and on the likelihood, by raising one of them to a power."""
