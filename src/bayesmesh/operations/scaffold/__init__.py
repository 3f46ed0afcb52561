"""Write the first files of a new component, experiment or project."""
