"""Counts with more zeros than a Poisson distribution has."""

from __future__ import annotations

from bayesmesh.models.glm.families._zeros import ZeroInflated, inflated_words
from bayesmesh.models.glm.families.poisson import Poisson


class ZeroInflatedPoisson(ZeroInflated):
    """0 with probability ``zi``, otherwise Poisson, with the log of its mean as the predictor."""

    rest = Poisson()
    needs = Poisson.needs
    words = inflated_words(Poisson.words)
