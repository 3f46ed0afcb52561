"""Published figures held against what the store says; verdicts come from stored numbers only.

Nothing here runs an experiment, and nothing in the configuration of claims is evaluated.
"""
