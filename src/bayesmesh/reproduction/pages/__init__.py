"""Pages of the benchmarks and of the published claims."""
