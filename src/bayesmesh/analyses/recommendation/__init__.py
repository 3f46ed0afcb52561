"""Recommendations under uncertainty: which unwatched film is best, how sure that is, and held-out evaluation."""
