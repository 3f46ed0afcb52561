"""Leave out each training row in turn by Pareto-smoothed importance sampling, and score every row."""
