"""Check published figures against stored results.

Nothing here runs an experiment, and nothing in the configuration of claims is evaluated.
"""
