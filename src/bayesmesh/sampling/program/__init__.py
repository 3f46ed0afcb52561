"""Build, size and compile the programs of a chain group: starts, segments and their statistics."""
