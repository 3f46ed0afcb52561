"""Measure what a choice of method costs, on posteriors that are known exactly."""
