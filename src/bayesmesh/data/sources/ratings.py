"""Ratings of films simulated from a factorisation, so that the truth is known; each user rates only a few films."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Dataset, Variable
from bayesmesh.data.sources.options import RatingsOptions as Options

MEAN = 3.0


class Source(base.Source):
    """A row for each rating: ``user`` and ``film`` int32, ``rating`` float64, or uint8 if rounded.

    Truth under the names of the latents of `rating_factorization`, unless ratings are rounded.
    """

    pretty_name = "Simulated ratings"
    offers = ("neighbours", "rating_scores")
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Simulate; the same options give the same ratings."""
        del folder
        own = self.options
        users, films = own.num_users, own.num_films
        embedding = math.sqrt(own.factor_scale / math.sqrt(own.width))
        scales = {
            "user_embeddings": ((users, own.width), embedding),
            "film_embeddings": ((films, own.width), embedding),
            "user_biases": ((users,), own.bias_scale),
            "film_biases": ((films,), own.bias_scale),
        }
        # One generator each, so that changing the number of films leaves the users unchanged.
        truth: dict[str, np.ndarray] = {
            name: scale * np.random.default_rng([own.seed, number]).standard_normal(shape)
            for number, (name, (shape, scale)) in enumerate(scales.items())
        }
        user, film = self._cells(np.random.default_rng([own.seed, len(scales)]))
        rating = np.random.default_rng([own.seed, len(scales) + 1]).normal(MEAN, own.noise, len(user))
        rating += truth["user_biases"][user] + truth["film_biases"][film]
        for column in range(own.width):
            rating += truth["user_embeddings"][user, column] * truth["film_embeddings"][film, column]
        if own.stars:
            rating, truth = np.clip(np.rint(rating), 1, own.stars).astype(np.uint8), {}
        else:
            truth |= {"mean": np.array(MEAN), "sigma": np.array(own.noise)}
        titles = [f"Film {number:03d}" for number in range(1, films + 1)]
        return Dataset(
            rows={"user": user, "film": film, "rating": rating},
            columns={"film_id": list(range(1, films + 1)), "title": titles},
            variables={
                "user": Variable("category", levels=tuple(f"User {number:04d}" for number in range(1, users + 1))),
                "film": Variable("category", levels=tuple(titles)),
                "rating": Variable("number"),
            },
            declared_counts={"rows": len(user)},
            truth=truth,
        )

    def _cells(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return user and film of each rating, int32: active users and popular films have many ratings, and no cell has two."""
        own = self.options
        wanted = 1 + (own.mean_ratings - 1) * random.exponential(size=own.num_users)
        counts = np.minimum(wanted.astype(np.int64), own.num_films)
        # The smaller of two random numbers, so that the first films are rated most.
        pairs = random.integers(0, own.num_films, (2, counts.sum()))
        cells = np.repeat(np.arange(own.num_users), counts) * own.num_films + pairs.min(axis=0)
        user, film = np.divmod(np.unique(cells), own.num_films)
        return user.astype(np.int32), film.astype(np.int32)
