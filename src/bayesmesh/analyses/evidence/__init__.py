"""Estimate the evidence, the mean likelihood under the prior, by bridge sampling and from tempered chains."""
