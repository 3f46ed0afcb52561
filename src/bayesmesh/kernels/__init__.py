"""MCMC transition kernels, one file each."""
