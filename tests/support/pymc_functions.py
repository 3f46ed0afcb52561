"""Functions that return a PyMC model, as a user's own module would hold it."""

from __future__ import annotations

from typing import Any

import bambi
import pymc


def level(rows: Any) -> pymc.Model:
    """Emissions around one level, with noise of an unknown scale."""
    with pymc.Model() as model:
        mean = pymc.Normal("mean", 0, 2)
        noise = pymc.HalfNormal("noise", 1.5)
        pymc.Normal("emission", mean, noise, observed=rows["emissions"])
    return model


def of_bambi(frame: Any) -> pymc.Model:
    """Return a model that holds its data, from a data frame with a category."""
    model = bambi.Model("y ~ x + (x | town)", frame)
    model.build()
    found: pymc.Model = model.backend.model
    return found


def walk(rows: Any) -> pymc.Model:
    """Each value near the one before it: rows depend on each other."""
    with pymc.Model() as model:
        noise = pymc.HalfNormal("noise", 1)
        pymc.Normal("steps", 0, noise, observed=rows["y"][1:] - rows["y"][:-1])
    return model


def with_deterministics(rows: Any) -> pymc.Model:
    """Return a model with deterministic variables: with dims, of the rows, one that cannot vary, and one that is random."""
    with pymc.Model(coords={"kind": ["a", "b"]}) as model:
        mean = pymc.Normal("mean", 0, 2, dims="kind")
        pymc.Deterministic("twice", 2 * mean, dims="kind")
        pymc.Deterministic("one", pymc.math.switch(mean[0] > -1000, 1, 0))
        mu = pymc.Deterministic("mu", mean[0] + mean[1] * rows["y"])
        pymc.Deterministic("unknown", pymc.Normal.dist(mean[0]))
        pymc.Normal("z", mu, 1, observed=rows["y"])
    return model


def identity(frame: Any) -> Any:
    """Forget to make a model."""
    return frame


def held(rows: Any) -> pymc.Model:
    """Observe numbers of its own, and no field."""
    del rows
    with pymc.Model() as model:
        pymc.Normal("y", pymc.Normal("mean", 0, 1), 1, observed=[1.0, 2.0])
    return model


def by_site(rows: Any) -> pymc.Model:
    """Return a model whose groups are numbered by ``count``, from 0 to 3."""
    with pymc.Model() as model:
        effects = pymc.Normal("effects", 0, 1, shape=4)
        pymc.Normal("y", effects[rows["count"]], pymc.HalfNormal("sigma", 1), observed=rows["y"])
    return model
