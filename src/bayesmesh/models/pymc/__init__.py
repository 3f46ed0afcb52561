"""Use PyMC models here, and likelihoods of models here in PyMC."""
