"""Amounts that are often 0, otherwise log-normal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from bayesmesh.models.glm.families._zeros import SHARE, Hurdle, hurdle_words
from bayesmesh.models.glm.families.base import Parameter
from bayesmesh.models.glm.families.log_normal import LogNormal


class HurdleLogNormal(Hurdle):
    """0 with probability ``hu``, otherwise log-normal, with the mean of the log as the predictor."""

    rest = LogNormal()
    parameters: ClassVar[Mapping[str, Parameter]] = {**LogNormal.parameters, "hu": SHARE}
    has_dispersion = True
    is_discrete = False
    needs = "numbers from 0"
    words = hurdle_words(LogNormal.words)
