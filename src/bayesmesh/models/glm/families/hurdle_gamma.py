"""Amounts that are often 0, otherwise gamma."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bayesmesh.models.glm.families._zeros import SHARE, Hurdle, hurdle_words
from bayesmesh.models.glm.families.base import Parameter
from bayesmesh.models.glm.families.gamma import Gamma


class HurdleGamma(Hurdle):
    """0 with probability ``hu``, otherwise gamma, with the log of its mean as the predictor."""

    rest = Gamma()
    parameters: ClassVar[Mapping[str, Parameter]] = {**Gamma.parameters, "hu": SHARE}
    links = Gamma.links
    has_dispersion = True
    is_discrete = False
    needs = "numbers from 0"
    words = hurdle_words(Gamma.words)
