"""Write the first files of a new component or experiment."""
