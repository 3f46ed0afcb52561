"""What warmup learns: step size, diagonal scale, trajectory length."""
