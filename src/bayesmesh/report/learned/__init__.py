"""Show estimates of latents and derived quantities: intervals, densities, forest plots, sentences, the known truth."""
