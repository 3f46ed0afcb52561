"""Counts with more zeros than a Poisson distribution has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bayesmesh.models.glm.families._zeros import SHARE, ZeroInflated, inflated_words
from bayesmesh.models.glm.families.base import Parameter
from bayesmesh.models.glm.families.poisson import Poisson


class ZeroInflatedPoisson(ZeroInflated):
    """0 with probability ``zi``, otherwise Poisson, with the log of its mean as the predictor."""

    rest = Poisson()
    parameters: ClassVar[Mapping[str, Parameter]] = {**Poisson.parameters, "zi": SHARE}
    links = Poisson.links
    needs = Poisson.needs
    words = inflated_words(Poisson.words)
