"""Templates of new components: code that runs unchanged, for components named new_model, new_source and so on."""
