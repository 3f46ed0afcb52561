"""Rows simulated from a normal with known mean and noise: the data for the closed-form checks."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.sources.options import GaussianOptions as Options


class Source(base.Source):
    """Field ``x`` (num_rows, dimension) float64; truth ``mean`` (dimension,), itself drawn from N(0, 1)."""

    pretty_name = "Simulated normal rows"
    offers = ()
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Simulate; the same options give the same rows."""
        del folder
        options = self.options
        mean = np.random.default_rng([options.seed, 0]).standard_normal(options.dimension)
        noise = np.random.default_rng([options.seed, 1]).standard_normal((options.num_rows, options.dimension))
        return Dataset(
            rows={"x": mean + options.noise_scale * noise},
            constants={"noise_scale": options.noise_scale, "dimension": options.dimension},
            declared_counts={"rows": options.num_rows},
            truth={"mean": mean},
        )
