"""Compare implementations side by side and report ratios to a named baseline."""
