"""Samplers that keep running moments instead of draws, so memory does not grow with the number of steps."""
