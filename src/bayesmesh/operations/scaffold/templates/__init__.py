"""Templates of new components: code that runs unchanged under the names new_model, new_source, new_kernel and new_analysis."""
