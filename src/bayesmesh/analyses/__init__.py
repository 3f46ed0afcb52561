"""Analyse a finished posterior, one folder per analysis."""
