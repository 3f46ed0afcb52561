"""Studies of the method itself, on posteriors that are known: what a choice costs, measured and not argued."""
