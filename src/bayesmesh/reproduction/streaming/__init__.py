"""Samplers that keep running moments and no draws, so that any number of steps fits into a fixed amount of memory."""
