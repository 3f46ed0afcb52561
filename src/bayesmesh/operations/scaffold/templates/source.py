"""Simulated rows from a normal distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset, Source

__all__ = ["NewSource", "Options"]


class Options(Settings):
    """Options of `new_source`."""

    num_rows: int = Field(100, ge=1, le=10**9, description="Rows to simulate.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the simulation.")


class NewSource(Source):
    """Field ``x`` (num_rows, 2) float64."""

    pretty_name = "New source"
    # Words of analyses that the data can be used for: docs/contracts/source.md.
    offers = ()
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Simulate; a source with files overrides `fetch` too, and reads here what that brought into `folder`."""
        del folder
        options = self.options
        x = np.random.default_rng(options.seed).standard_normal((options.num_rows, 2))
        return Dataset(rows={"x": x}, declared_counts={"rows": options.num_rows})
