"""Read and write everything under `results/`: paths, arrays, segments, sealed records, the posterior."""
