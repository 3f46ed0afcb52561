"""Counts with more zeros than a negative binomial distribution has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bayesmesh.models.glm.families._zeros import SHARE, ZeroInflated, inflated_words
from bayesmesh.models.glm.families.base import Parameter
from bayesmesh.models.glm.families.negative_binomial import NegativeBinomial


class ZeroInflatedNegativeBinomial(ZeroInflated):
    """0 with probability ``zi``, otherwise negative binomial, with the log of its mean as the predictor."""

    rest = NegativeBinomial()
    parameters: ClassVar[Mapping[str, Parameter]] = {**NegativeBinomial.parameters, "zi": SHARE}
    links = NegativeBinomial.links
    has_dispersion = True
    needs = NegativeBinomial.needs
    words = inflated_words(NegativeBinomial.words)
