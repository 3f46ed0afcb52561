"""Hamiltonian dynamics shared by kernels: leapfrog trajectories, No-U-Turn trees and their random numbers."""
