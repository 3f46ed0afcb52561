"""Predict hidden ratings of users whom the chains have not seen, each folded in from the user's other ratings."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
from scipy.special import ndtr

from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.fold_in.draws import FactorDraws, read_factors
from bayesmesh.analyses.fold_in.ratings import (
    GivenRatings,
    RatingOptions,
    RatingScales,
    cutpoints,
    expected_ratings,
    fold_in_run,
    scales_of,
)
from bayesmesh.analyses.fold_in.users import FoldedDraw, over_draws
from bayesmesh.analyses.fold_in.watches import sigmoid
from bayesmesh.analyses.rating_scores.hidden_ratings import Cells, Predicted
from bayesmesh.data.split import held_out_count
from bayesmesh.store.posterior.reader import Posterior

MOST_DRAWS = 200
"""Largest number of draws of the films for which new users are folded in."""

READ_BYTES = 2**30
"""Limit on the chunks of draws that are decoded, in bytes."""


def are_new(bound: BoundModel, cells: Cells, training: Cells) -> bool:
    """Return whether the model folds in users and no user with hidden ratings has any in training."""
    return bool(bound.model.folds_in_ratings and not np.isin(cells.user, training.user).any())


class Divided(NamedTuple):
    """Ratings of new users, sorted by user: those from which a user is folded in, and those to predict."""

    given: Cells
    hidden: Cells


def divide(cells: Cells, share: float, seed: int) -> Divided:
    """Divide the ratings of each user at random; a user with a single rating is left out.

    The choice for a user depends only on the seed, the user's code and the number of the user's ratings.

    Args:
        cells: ratings of new users.
        share: share of each user's ratings that is given; at least one is hidden and one is given.
        seed: of the choice.

    >>> cells = Cells(np.array([7, 7, 7, 9, 7]), np.arange(5), np.arange(5.0))
    >>> [len(part.film) for part in divide(cells, 0.75, 0)]
    [3, 1]
    """
    order = np.lexsort((cells.film, cells.user))
    users, starts, counts = np.unique(cells.user[order], return_index=True, return_counts=True)
    given, hidden = [], []
    for user, start, count in zip(users, starts, counts, strict=True):
        num_hidden = held_out_count(int(count), 1 - share)
        if num_hidden:
            own = start + np.random.default_rng([seed, 3, int(user)]).permutation(count)
            hidden.append(np.sort(own[:num_hidden]))
            given.append(np.sort(own[num_hidden:]))
    empty = np.zeros(0, np.int64)
    chosen = (order[np.concatenate(each) if each else empty] for each in (given, hidden))
    return Divided(*(Cells(*(values[rows] for values in cells)) for rows in chosen))


def predict_new(bound: BoundModel, posterior: Posterior, divided: Divided, most_draws: int) -> Predicted:
    """Return the predictions of each hidden rating from draws of the films and of the folded-in users.

    Args:
        bound: model and data.
        posterior: the draws.
        divided: ratings of new users.
        most_draws: most draws to use; at most `MOST_DRAWS`.
    """
    spec, options = bound.data_spec, bound.model.options
    scales = scales_of(
        cast(RatingOptions, options), spec.constants["rating_sd"], spec.arrays.get("levels", np.zeros(0))
    )
    draws = read_factors(posterior, None, min(most_draws, MOST_DRAWS), shared=scales.shared, read_bytes=READ_BYTES)
    given, hidden = divided
    users, start = np.unique(given.user, return_index=True)
    known = GivenRatings(given.film, _coded(given.rating, scales), np.append(start, len(given.film)))
    place = np.searchsorted(users, hidden.user)

    def work(run: range) -> tuple[np.ndarray, list[float]]:
        sums, by_draw = np.zeros((5, len(hidden.rating))), []
        for one in fold_in_run(draws, run, known, scales):
            found = _predict(one, draws, hidden, place, scales)
            sums += found
            by_draw.append(float(np.sqrt(found[1].mean())))
        return sums, by_draw

    parts = over_draws(draws.num_draws, work)
    mean, square, absolute, below, up_to = np.sum([part[0] for part in parts], axis=0) / draws.num_draws
    return Predicted(mean, square, absolute, below, up_to, np.concatenate([part[1] for part in parts]))


def _coded(rating: np.ndarray, scales: RatingScales) -> np.ndarray:
    """Return ratings, or numbers of the nearest ordered levels, as floats: the experiment's dtype rounds ratings.

    >>> levels = np.array([0.1, 0.2, 0.7])
    >>> _coded(levels.astype(np.float32), RatingScales(1, 1, levels)).tolist()
    [0.0, 1.0, 2.0]
    """
    if not len(scales.levels):
        return rating
    return np.searchsorted((scales.levels[1:] + scales.levels[:-1]) / 2, rating).astype(np.float64)


def _predict(one: FoldedDraw, draws: FactorDraws, hidden: Cells, place: np.ndarray, scales: RatingScales) -> np.ndarray:
    """Return the quantities of `Predicted` in one draw, (5, rating): expectation, errors, and the distribution function."""
    predictor = (one.latents[place] * one.films.design[hidden.film]).sum(axis=1) + one.films.offset[hidden.film]
    shared = {name: draws.shared[name][one.place] for name in scales.shared}
    mean = expected_ratings(predictor, shared, scales)
    if len(scales.levels):
        edges = np.concatenate([[-np.inf], cutpoints(shared["baseline"]), [np.inf]])
        level = _coded(hidden.rating, scales).astype(np.int64)
        below, up_to = (sigmoid(edges[at] - predictor) for at in (level, level + 1))
    else:
        below = up_to = ndtr((hidden.rating - mean) / shared["sigma"])
    error = mean - hidden.rating
    return np.stack([mean, error**2, np.abs(error), below, up_to])
