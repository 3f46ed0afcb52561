"""Tables simulated by seed, the models asked of them, and references made without the package."""
