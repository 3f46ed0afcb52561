"""Say where in the posterior divergences gather: at which values of which latents, and of which pairs."""
