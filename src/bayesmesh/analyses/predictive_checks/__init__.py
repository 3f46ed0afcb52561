"""Compare outcomes simulated from the posterior with the observed ones, by test quantities that fit the outcome."""
