"""Compute effects of predictors as `marginaleffects` defines them: predictions, comparisons and slopes, from all draws."""
