"""Measure the cost of a method on posteriors that are known exactly."""
