"""Analyses of posteriors: one folder each, with its settings, its computation and its section of the page."""
