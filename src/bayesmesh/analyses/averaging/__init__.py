"""Average predictive probabilities over draws and score them on test rows."""
