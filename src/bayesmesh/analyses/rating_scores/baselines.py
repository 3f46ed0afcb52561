"""Fit simple rules that predict ratings: one number for all, and ridge-regression biases of users and films."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.rating_scores.hidden_ratings import Cells

PENALTIES = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Ridge penalties to try, as the number of ratings that weigh as much as the prior of a bias."""

SWEEPS = 20
"""Number of updates of both sides; the remaining error is mostly a shift between users and films, which predictions do
not see."""

INNER = 0.1
"""Share of the training ratings on which the penalty is chosen."""


class Biases(NamedTuple):
    """A fit: mean, user and film biases, and the penalty."""

    mean: float
    users: np.ndarray
    films: np.ndarray
    penalty: float

    def predict(self, cells: Cells) -> np.ndarray:
        """Return the predicted ratings, (rating,)."""
        return self.mean + self.users[cells.user] + self.films[cells.film]


def fit_biases(cells: Cells, num_users: int, num_films: int, penalty: float) -> Biases:
    """Return the biases that minimise squared errors plus `penalty` times squared biases, for users and films in turn.

    A user or film without a rating has the bias 0.

    >>> cells = Cells(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([5.0, 3.0, 3.0]))
    >>> fit_biases(cells, 2, 2, 0.0).predict(cells).round(3).tolist()
    [5.0, 3.0, 3.0]
    """
    mean = float(cells.rating.mean())
    users, films = np.zeros(num_users), np.zeros(num_films)
    of_users = np.maximum(np.bincount(cells.user, minlength=num_users) + penalty, 1)
    of_films = np.maximum(np.bincount(cells.film, minlength=num_films) + penalty, 1)
    for _ in range(SWEEPS):
        users = np.bincount(cells.user, cells.rating - mean - films[cells.film], num_users) / of_users
        films = np.bincount(cells.film, cells.rating - mean - users[cells.user], num_films) / of_films
    return Biases(mean, users, films, penalty)


def with_new_users(biases: Biases, given: Cells) -> Biases:
    """Return a fit with the biases of further users, given some of their ratings and the biases of the films."""
    users = np.zeros(max(len(biases.users), int(given.user.max()) + 1))
    users[: len(biases.users)] = biases.users
    sums = np.bincount(given.user, given.rating - biases.mean - biases.films[given.film], len(users))
    counts = np.bincount(given.user, minlength=len(users))
    new = sums / np.maximum(counts + biases.penalty, 1)
    return biases._replace(users=np.where(counts > 0, new, users))


def choose_biases(cells: Cells, num_users: int, num_films: int, seed: int) -> Biases:
    """Return a fit to all ratings, with the penalty that best predicts a held-out tenth of them."""
    is_inner = np.random.default_rng([seed, 1]).random(len(cells.rating)) < INNER
    if is_inner.all() or not is_inner.any():
        return fit_biases(cells, num_users, num_films, PENALTIES[1])
    fitted, inner = (Cells(*(each[chosen] for each in cells)) for chosen in (~is_inner, is_inner))
    errors = [
        np.square(fit_biases(fitted, num_users, num_films, penalty).predict(inner) - inner.rating).mean()
        for penalty in PENALTIES
    ]
    return fit_biases(cells, num_users, num_films, PENALTIES[int(np.argmin(errors))])


def joined(blocks: Sequence[Cells]) -> Cells:
    """Return the ratings of all blocks."""
    return Cells(*(np.concatenate(each) for each in zip(*blocks, strict=True)))
