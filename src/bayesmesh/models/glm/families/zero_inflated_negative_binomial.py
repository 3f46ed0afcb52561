"""Counts with more zeros than a negative binomial distribution has."""

from __future__ import annotations

from bayesmesh.models.glm.families._zeros import ZeroInflated, inflated_words
from bayesmesh.models.glm.families.negative_binomial import NegativeBinomial


class ZeroInflatedNegativeBinomial(ZeroInflated):
    """0 with probability ``zi``, otherwise negative binomial, with the log of its mean as the predictor."""

    rest = NegativeBinomial()
    needs = NegativeBinomial.needs
    words = inflated_words(NegativeBinomial.words)
