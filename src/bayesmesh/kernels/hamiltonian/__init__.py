"""Hamiltonian dynamics, shared by the kernels that use it."""
