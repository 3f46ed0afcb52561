"""Amounts that are often 0, otherwise gamma."""

from __future__ import annotations

from bayesmesh.models.glm.families._zeros import Hurdle, hurdle_words
from bayesmesh.models.glm.families.gamma import Gamma


class HurdleGamma(Hurdle):
    """0 with probability ``hu``, otherwise gamma, with the log of its mean as the predictor."""

    rest = Gamma()
    needs = "numbers from 0"
    words = hurdle_words(Gamma.words)
