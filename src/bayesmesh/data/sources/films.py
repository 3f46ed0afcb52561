"""A small watch matrix simulated from the factorisation model, so that the truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Column, Dataset
from bayesmesh.data.sources.options import FilmsOptions as Options

GENRES = ["Harbour", "Inventors", "Lighthouse", "Mountain", "Orchestra", "Winter"]
"""Invented words, so that no simulated title resembles a real one."""


class Source(base.Source):
    """Field ``watched`` (users, films) uint8; truth under the names of the latents of `matrix_factorization`."""

    pretty_name = "Simulated watch matrix"
    offers = ("recommendation", "neighbours")
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Simulate; the same options give the same matrix."""
        del folder
        options = self.options
        users, films, width = options.num_users, options.num_films, options.width
        shapes = {
            "user_embeddings": (users, width),
            "film_embeddings": (films, width),
            "user_biases": (users,),
            "film_biases": (films,),
        }
        # One generator each, so that changing the number of films leaves the users unchanged.
        truth = {
            name: options.latent_scale * np.random.default_rng([options.seed, number]).standard_normal(shape)
            for number, (name, shape) in enumerate(shapes.items())
        }
        truth["film_biases"] = truth["film_biases"] + options.offset
        logits = truth["user_embeddings"] @ truth["film_embeddings"].T
        logits += truth["user_biases"][:, None] + truth["film_biases"]
        # Watched where a logistic variate lies below the logit, so that no exponential can overflow.
        noise = np.random.default_rng([options.seed, len(shapes)]).logistic(size=(users, films))
        return Dataset(
            rows={"watched": (noise < logits).astype(np.uint8)},
            columns=self._columns(),
            declared_counts={"rows": users, "columns": films},
            truth=truth,
            kind="interactions",
        )

    def _columns(self) -> dict[str, Column]:
        options = self.options
        generator = np.random.default_rng([options.seed, 1000])
        genres = [
            sorted(str(name) for name in generator.choice(GENRES, size=generator.integers(1, 3), replace=False))
            for _ in range(options.num_films)
        ]
        return {
            "film_id": list(range(1, options.num_films + 1)),
            "title": [f"Film {number:03d}" for number in range(1, options.num_films + 1)],
            "genres": genres,
            "user_id": list(range(1, options.num_users + 1)),
        }
