"""The results of checks of a model's fit, for the mark at the top of a page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

Aspect = Literal["binary", "skewed", "bias", "narrow", "wide", "uneven", "tails", "zeros", "shape"]
"""How predictions are wrong: counts that are all 0 or 1; positive outcomes whose skewness or spread logs would remove;
their centre; too narrow or too wide; a spread that changes with the rows; tails that are too light; too few zeros; any
other feature of the distribution."""

State = Literal["pass", "warn", "fail"]


@dataclasses.dataclass(frozen=True)
class FitCheck:
    """The result of one check of the fit.

    Attributes:
        name: name of the check.
        state: ``fail`` where the data refute the model, ``warn`` where a check casts doubt on it or on itself, ``pass`` if neither.
        text: a sentence with the numbers that decided; empty if it passed.
        refuted: how predictions are wrong -> by how much, in standard deviations of what chance does.
        cleared: what was checked and found to be right.
        spread: scatter of outcomes around their predictions, relative to what the model says; NaN if it was not measured.
        terms: terms that the model's formula lacks -> how plainly, likewise.
    """

    name: str
    state: State
    text: str = ""
    refuted: Mapping[Aspect, float] = MappingProxyType({})
    cleared: frozenset[Aspect] = frozenset()
    spread: float = math.nan
    terms: Mapping[str, float] = MappingProxyType({})
