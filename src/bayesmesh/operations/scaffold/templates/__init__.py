"""Templates of new components: code that runs unchanged under the names new_model, new_source and so on."""
