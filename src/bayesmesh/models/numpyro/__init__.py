"""Use NumPyro models here: a function with its primitives, its plate as rows where it has one."""
