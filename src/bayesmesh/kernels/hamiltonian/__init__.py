"""Hamiltonian dynamics shared by kernels: leapfrog trajectories and No-U-Turn trees."""
