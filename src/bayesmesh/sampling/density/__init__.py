"""Evaluate a log density over a mesh: positions, rows, devices, and quantities computed from latents and rows."""
