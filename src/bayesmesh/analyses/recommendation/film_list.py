"""Rank films for one user from draws in memory: by mean value, probability of being best, or Thompson sampling.

The value of a film is the probability that the user watches it, from its logit, or the expected rating.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.watches import sigmoid

Order = Literal["mean", "best", "thompson"]
"""``mean``: by the posterior mean of the value. ``best``: by the share of draws in which the film ranks first.
``thompson``: by the values of a single draw, chosen at random, so that uncertain films get their turn."""

INTERVAL = 0.9
"""Probability of the intervals."""


class ListedFilm(NamedTuple):
    """A film in a user's list.

    Attributes:
        film: column of the watch matrix, or code of the film.
        mean, low, high: posterior mean of the value and its central interval of probability `INTERVAL`.
        p_best: share of draws in which it ranks first among the films that may be listed.
        p_top: share of draws in which it is among the first `top`.
    """

    film: int
    mean: float
    low: float
    high: float
    p_best: float
    p_top: float


def list_films(
    scores: np.ndarray,
    is_known: np.ndarray,
    num_films: int,
    top: int,
    order: Order,
    generator: np.random.Generator,
    to_value: Callable[[np.ndarray], np.ndarray] = sigmoid,
) -> list[ListedFilm]:
    """Return the first films of a user; ties go to the lower column.

    Args:
        scores: (draws, films), of one user: logits, or expected ratings.
        is_known: (films,) bool, films that are not listed.
        num_films: films to list; fewer if the user has fewer left.
        top: depth of ``p_top``.
        order: see `Order`.
        generator: chooses the draw of ``thompson``.
        to_value: increasing map of scores to the values of `ListedFilm`.
    """
    candidates = np.flatnonzero(~is_known)
    if not len(candidates):
        return []
    chosen = scores[:, candidates]
    depth = min(top, len(candidates))
    ranked = np.argsort(-chosen, axis=1, kind="stable")[:, :depth]
    p_best = np.bincount(ranked[:, 0], minlength=len(candidates)) / len(chosen)
    p_top = np.bincount(ranked.ravel(), minlength=len(candidates)) / len(chosen)
    mean = to_value(chosen).mean(axis=0, dtype=np.float64)
    keys: dict[Order, Sequence[np.ndarray]] = {
        "mean": (-mean,),
        "best": (-mean, -p_top, -p_best),
        "thompson": (-chosen[generator.integers(len(chosen))],),
    }
    listed = np.lexsort(keys[order])[:num_films]
    # Quantiles commute with an increasing map.
    tail = (1 - INTERVAL) / 2
    low, high = to_value(np.quantile(chosen[:, listed], [tail, 1 - tail], axis=0))
    numbers = zip(candidates[listed], mean[listed], low, high, p_best[listed], p_top[listed], strict=True)
    return [ListedFilm(int(film), *map(float, rest)) for film, *rest in numbers]
