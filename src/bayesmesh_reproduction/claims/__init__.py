"""Check published figures against stored results.

Nothing here runs an experiment.
"""
