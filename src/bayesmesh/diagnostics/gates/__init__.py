"""Gates, one file each: what is detected, its message and its remedy."""
