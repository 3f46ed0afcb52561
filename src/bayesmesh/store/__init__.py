"""Read and write everything under `results/`: paths, arrays, segments, records of jobs, the posterior."""
