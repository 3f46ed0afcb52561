"""Use NumPyro models: a function with NumPyro's primitives, whose plate, if it has one, becomes the rows."""
