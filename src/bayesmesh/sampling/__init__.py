"""Sample from a model with a kernel: device mesh, log density, compiled programs, the loop, the writer."""
