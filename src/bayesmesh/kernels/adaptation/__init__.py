"""Adaptation during warmup: windows, step size, metric, trajectory length."""
