"""Say what was learned: latents and derived quantities with their intervals, densities, forests, and the known truth."""
