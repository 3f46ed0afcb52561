"""Bayesian model averages: predictive probabilities averaged over draws, and how well they score on test rows."""
