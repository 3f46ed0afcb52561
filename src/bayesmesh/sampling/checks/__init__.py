"""Check models, kernels and data before anything is sampled, and the likelihood's rounding afterwards."""
