"""Gates by cause, each with its detection, message and remedy."""
