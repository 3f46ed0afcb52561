"""Find where in the posterior divergences gather: at which values of which latents and pairs of latents."""
