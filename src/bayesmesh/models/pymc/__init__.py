"""Use PyMC models in Bayesmesh, and likelihoods of Bayesmesh models in PyMC."""
