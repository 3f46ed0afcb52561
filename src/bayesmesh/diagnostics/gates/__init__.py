"""Gates by cause: what is detected, its message and its remedy."""
