"""Assess convergence: R-hat, effective sample sizes and energies of every coordinate, gates and the verdict.

Nothing here imports JAX: a posterior can be assessed on a machine that could not have sampled it.
"""
