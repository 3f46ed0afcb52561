"""Analyse finished posteriors, one file or folder per analysis, which the registry finds."""
