"""Compare models by their stored scores and evidence: differences, weights, quantities side by side, and the page."""
