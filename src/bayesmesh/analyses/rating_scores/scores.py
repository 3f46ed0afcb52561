"""Score predictions of hidden ratings, with intervals from a bootstrap over users."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd

from bayesmesh.analyses.base import BoundModel, unsuitable
from bayesmesh.analyses.options import RatingScoresOptions as Options
from bayesmesh.analyses.rating_scores.predictions import (
    KEY,
    Cells,
    Predicted,
    are_new,
    divide,
    hidden_cells,
    predict_hidden,
    predict_new,
    training_cells,
)
from bayesmesh.files import write_text
from bayesmesh.store.posterior.reader import Posterior

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


PROBABILITIES = (0.5, 0.8, 0.9)
"""Probabilities of the central intervals whose coverage is computed."""

LIMITS = (0.025, 0.975)


def score_ratings(bound: BoundModel, posterior: Posterior, options: Options, files: Mapping[str, Path]) -> str:
    """Write the scores of all predictions and the coverage of intervals, and return the errors as text.

    Memory: about ten numbers per hidden rating and three per training rating, besides blocks of draws.

    Args:
        bound: model and data.
        posterior: the draws.
        options: draws and resamples.
        files: paths of ``scores.csv`` and ``coverage.csv``.

    Raises:
        ConfigError: nothing is held out, or each new user has a single rating.
    """
    jax.config.update("jax_enable_x64", True)
    cells, training = hidden_cells(bound), training_cells(bound)
    num_films = int(max(training.film.max(), cells.film.max())) + 1
    biases = choose_biases(training, bound.data_spec.num_entries, num_films, options.seed)
    num_given = 0
    if are_new(bound, cells, training):
        given, cells = divide(cells, options.given, options.seed)
        if not len(cells.rating):
            raise unsuitable(KEY, "each new user has a single rating; none is left to predict")
        found, num_given = predict_new(bound, posterior, given, cells, options.draws), len(given.rating)
        biases = with_new_users(biases, given)
    else:
        stride = -(-posterior.num_chains * posterior.num_draws // options.draws)
        found = predict_hidden(bound, posterior, cells, stride)
    # Errors of each rating, (rating,): squared and absolute.
    errors = {
        "posterior_average": _errors(found.mean - cells.rating),
        "single_draw": (found.square, found.absolute),
        "biases": _errors(biases.predict(cells) - cells.rating),
        "mean": _errors(biases.mean - cells.rating),
    }
    covered = np.stack([holds(found, probability) for probability in PROBABILITIES])
    users = _users(cells.user, np.concatenate([*(np.stack(each) for each in errors.values()), covered]))
    boot = resample(users, options.resamples, options.seed)
    whole = users.sums.sum(axis=1) / users.counts.sum()
    about = {
        "num_draws": len(found.by_draw), "num_ratings": len(cells.rating), "num_users": len(users.counts),
        "num_given": num_given,
    }  # fmt: skip
    rows = []
    for place, name in enumerate(errors):
        row: dict[str, object] = {"prediction": name, **about}
        for score, of, power in (("rmse", 2 * place, 0.5), ("mae", 2 * place + 1, 1.0)):
            own, drawn = whole[of] ** power, boot[:, of] ** power
            row |= _with_limits(score, own, drawn)
            less = drawn - boot[:, of % 2] ** power
            row |= _with_limits(f"{score}_less_average", own - whole[of % 2] ** power, less)
        ends = np.quantile(found.by_draw, (0.05, 0.95)).tolist() if name == "single_draw" else (None, None)
        row |= {"rmse_of_draws_q5": ends[0], "rmse_of_draws_q95": ends[1]}
        rows.append({**row, "penalty": biases.penalty if name == "biases" else None})
    write_text(files["scores.csv"], pd.DataFrame(rows).to_csv(index=False))
    first = 2 * len(errors)
    table = [
        {"probability": p, **_with_limits("covered", whole[first + i], boot[:, first + i]), **about}
        for i, p in enumerate(PROBABILITIES)
    ]
    write_text(files["coverage.csv"], pd.DataFrame(table).to_csv(index=False))
    rmse = [f"{whole[2 * place] ** 0.5:.4f} of {name.replace('_', ' ')}" for place, name in enumerate(errors)]
    return f"RMSE {', '.join(rmse)}; {len(cells.rating)} hidden ratings"


def _errors(error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return error**2, np.abs(error)


def holds(found: Predicted, probability: float) -> np.ndarray:
    """Return the part of each rating within the central interval of its averaged prediction, (rating,) in [0, 1].

    A continuous rating lies in it or not. A discrete rating counts with the fraction of its probability that lies
    between the tails, so that the mean is `probability` if the distribution is correct.

    Reference:
        Czado, Gneiting and Held 2009, "Predictive model assessment for count data", Biometrics 65, section 2.1.
    """
    tail = (1 - probability) / 2
    width = found.up_to - found.below
    inside = np.minimum(found.up_to, 1 - tail) - np.maximum(found.below, tail)
    part = np.divide(inside, width, out=np.zeros_like(width), where=width > 0)
    return np.where(width > 0, np.clip(part, 0, 1), (found.up_to >= tail) & (found.up_to <= 1 - tail))


class Users(NamedTuple):
    """Sums over each user's hidden ratings, and their number.

    Attributes:
        sums: (score, user).
        counts: (user,), all greater than 0.
    """

    sums: np.ndarray
    counts: np.ndarray


def _users(user: np.ndarray, values: np.ndarray) -> Users:
    found, place = np.unique(user, return_inverse=True)
    sums = np.stack([np.bincount(place, each, len(found)) for each in values])
    return Users(sums, np.bincount(place, minlength=len(found)))


def resample(users: Users, resamples: int, seed: int) -> np.ndarray:
    """Return bootstrap means over ratings of each score, resampling users, (resample, score); NaN for one user."""
    random, number = np.random.default_rng([seed, 2]), len(users.counts)
    if number < 2:
        return np.full((resamples, len(users.sums)), np.nan)
    found = np.empty((resamples, len(users.sums)))
    for place in range(resamples):
        weights = np.bincount(random.integers(0, number, number), minlength=number)
        found[place] = users.sums @ weights / (users.counts @ weights)
    return found


def _with_limits(name: str, value: float, drawn: np.ndarray) -> dict[str, object]:
    low, high = np.quantile(drawn, LIMITS)
    return {name: float(value), f"{name}_low": float(low), f"{name}_high": float(high)}
