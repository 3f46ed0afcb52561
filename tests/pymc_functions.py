"""A function that returns a PyMC model, as a user's own module would hold it."""

from __future__ import annotations

from typing import Any

import pymc


def level(rows: Any) -> pymc.Model:
    """Emissions around one level, with noise of an unknown scale."""
    with pymc.Model() as model:
        mean = pymc.Normal("mean", 0, 2)
        noise = pymc.HalfNormal("noise", 1.5)
        pymc.Normal("emission", mean, noise, observed=rows["emissions"])
    return model
