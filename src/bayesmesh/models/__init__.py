"""Statistical models, one file each: a prior and a log likelihood."""
