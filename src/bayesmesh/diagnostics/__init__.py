"""Convergence at scale: statistics of every coordinate, energies, gates and the verdict.

Nothing here imports JAX: a posterior can be judged on a machine that could not have sampled it.
"""
