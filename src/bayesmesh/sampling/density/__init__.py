"""Evaluate a log density over a mesh: positions, rows, devices, and what is computed from latents and rows."""
