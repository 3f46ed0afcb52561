"""A model's description of itself for the page of an experiment; `assemble` stores it as an attribute of the posterior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pydantic


class Effects(pydantic.BaseModel):
    """How the linear predictor acts on the outcome.

    Attributes:
        scale: whether its exponential is a factor, or it adds.
        of: quantity that it multiplies or adds to, such as ``the mean of y``; ``{level}`` stands for the level of the outcome.
        doubled: columns that it reads as logs, whose natural change is doubling.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    scale: Literal["ratio", "difference"]
    of: str
    doubled: tuple[str, ...] = ()


class ModelDescription(pydantic.BaseModel):
    """What the page says about a model in addition to its numbers.

    Attributes:
        facts: its assumptions, in the order of the page, such as ``Family`` -> ``Poisson``.
        warnings: reasons to doubt that it is the model that was meant; `compile` logs them.
        meanings: latent or summary -> its meaning, for names that do not explain themselves.
        names: latent or summary -> its name on the page, where the name of a stored array cannot be that.
        scales: latent or summary -> factor by which the page multiplies it, to show it in the unit of the outcome.
        effects: how the linear predictor acts on the outcome.
        units: latent (input, unit) whose inputs may be the pixels of images, and whose units may change places; empty for none.
        cells: summary with an entry for each probe row -> columns whose levels name a row, such as user and film.
        remedies: way in which predictions are wrong, see `bayesmesh.analyses.figures.sections.Aspect` -> what to try.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid")

    facts: Mapping[str, str] = {}
    warnings: tuple[str, ...] = ()
    meanings: Mapping[str, str] = {}
    names: Mapping[str, str] = {}
    scales: Mapping[str, float] = {}
    effects: Effects | None = None
    units: str = ""
    cells: Mapping[str, tuple[str, ...]] = {}
    remedies: Mapping[str, str] = {}
