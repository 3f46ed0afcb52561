"""Check the watch probabilities of new users: hide cells, watched or not, from the fold-in, and predict them.

Films are divided into folds at random, and so are users: for a user, the films of one fold are unknown, and all others
are observed. Hidden cells are thus a random subset of all cells, unlike the hidden films of a ranking, which were all
watched.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.fold_in.draws import FactorDraws
from bayesmesh.analyses.fold_in.watches import fold_in_run, over_draws, sigmoid

NUM_FOLDS = 5

EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""Limits of the bins of watch probabilities."""

PROBABILITY = 0.9
"""Probability of the intervals of counts and logits."""

LOGITS_OF_USER = 16
"""Number of hidden cells per user at which true logits are compared, for simulated data."""


class Bin(NamedTuple):
    """Hidden cells whose mean watch probability lies between two limits.

    Attributes:
        low, high: the limits.
        num_cells: how many.
        predicted: mean of their probabilities.
        watched: share of them that were watched.
        difference_se: standard error of `watched` minus `predicted`: over users, or of independent cells if that is
            larger.
    """

    low: float
    high: float
    num_cells: int
    predicted: float
    watched: float
    difference_se: float


class Calibration(NamedTuple):
    """How well the hidden cells of new users were predicted.

    Attributes:
        bins: by watch probability, without empty ones.
        count_pit: (users,), randomised probability integral transform of the number of hidden cells that were watched.
        covered_logits: (users,), share of true logits inside their intervals; empty if the truth is unknown.
    """

    bins: list[Bin]
    count_pit: np.ndarray
    covered_logits: np.ndarray


def calibrate(
    draws: FactorDraws, watched: np.ndarray, prior_scale: float, seed: int, true_logits: np.ndarray | None = None
) -> Calibration:
    """Hide a fold of films from each new user, fold the user in, and compare.

    Args:
        draws: of the films.
        watched: (users, films) bool, all films that the users watched.
        prior_scale: standard deviation of the prior of a user's latents.
        seed: of the folds and of simulated counts.
        true_logits: (users, films), if data are simulated.
    """
    users, num_films = watched.shape
    generator = np.random.default_rng([seed, num_films])
    num_folds = min(NUM_FOLDS, num_films)
    fold_of_user = generator.permutation(users) % num_folds
    fold_of_film = generator.permutation(num_films) % num_folds
    probability, pit = np.zeros((users, num_films), np.float32), np.empty(users)
    covered = np.empty(0 if true_logits is None else users)
    for fold in range(num_folds):
        mine, hidden = np.flatnonzero(fold_of_user == fold), np.flatnonzero(fold_of_film == fold)
        if not len(mine) or not len(hidden):
            continue
        probed = hidden[:LOGITS_OF_USER] if true_logits is not None else hidden[:0]
        parts = _predict(draws, watched[mine], prior_scale, hidden, probed, seed)
        totals, counts, logits = zip(*parts, strict=True)
        probability[np.ix_(mine, hidden)] = sum(totals) / draws.num_draws
        num_watched = watched[np.ix_(mine, hidden)].sum(axis=1)
        pit[mine] = randomised_pit(np.concatenate(counts), num_watched, generator)
        if true_logits is not None:
            covered[mine] = covered_share(np.concatenate(logits), true_logits[np.ix_(mine, probed)])
    is_hidden = fold_of_user[:, None] == fold_of_film
    return Calibration(bin_cells(probability, watched, is_hidden), pit, covered)


def _predict(
    draws: FactorDraws, watched: np.ndarray, prior_scale: float, hidden: np.ndarray, probed: np.ndarray, seed: int
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each run of draws: the sum of the probabilities of hidden cells, counts of watched ones, and logits."""
    observed = np.setdiff1d(np.arange(watched.shape[1]), hidden)
    known = watched[:, observed]

    def work(run: range) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        total = np.zeros((len(watched), len(hidden)), np.float64)
        counts, logits = [], []
        for folded in fold_in_run(draws, run, known, prior_scale, observed):
            found = folded.logits()
            chance = sigmoid(found[:, hidden])
            total += chance
            generator = np.random.default_rng([seed, 1, folded.place])
            counts.append((generator.random(chance.shape, np.float32) < chance).sum(axis=1))
            logits.append(found[:, probed])
        return total, np.stack(counts), np.stack(logits)

    return over_draws(draws.num_draws, work)


def randomised_pit(simulated: np.ndarray, observed: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a number for each count that is uniform if the observed count is one more draw of the simulated ones.

    It is the share of smaller counts plus a random part of the share of equal ones, which includes the observed count.

    Args:
        simulated: (draws, users).
        observed: (users,).
        generator: random numbers.

    >>> randomised_pit(np.array([[1], [2], [3]]), np.array([9]), np.random.default_rng(0)) > 0.75
    array([ True])
    """
    below, equal = (simulated < observed).sum(axis=0), (simulated == observed).sum(axis=0) + 1
    return (below + generator.random(len(observed)) * equal) / (len(simulated) + 1)


def covered_share(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the share of true values within central intervals of probability `PROBABILITY`, per user.

    Quantiles have the plotting position p (n + 1), with which a further draw lies inside with this probability exactly.

    Args:
        draws: (draws, users, values).
        truth: (users, values).
    """
    tail = (1 - PROBABILITY) / 2
    low, high = np.quantile(draws, [tail, 1 - tail], axis=0, method="weibull")
    return ((low <= truth) & (truth <= high)).mean(axis=1)


def bin_cells(probability: np.ndarray, watched: np.ndarray, is_hidden: np.ndarray) -> list[Bin]:
    """Compare mean probabilities with shares of watched cells, by bins of `EDGES`; errors are over users.

    Args:
        probability: (users, films).
        watched: (users, films) bool.
        is_hidden: (users, films) bool, cells to compare.
    """
    place = np.clip(np.searchsorted(EDGES, probability, side="right") - 1, 0, len(EDGES) - 2)
    bins = []
    for number, (low, high) in enumerate(itertools.pairwise(EDGES)):
        chosen = is_hidden & (place == number)
        count = int(chosen.sum())
        if not count:
            continue
        predicted = (probability * chosen).sum(axis=1, dtype=np.float64)
        found = (watched & chosen).sum(axis=1)
        # The cells of one user are dependent; users are independent.
        off = found - predicted - (found.sum() - predicted.sum()) / count * chosen.sum(axis=1)
        share = float(predicted.sum() / count)
        # If few cells were watched, the error over users underestimates chance variation.
        error = max(np.sqrt((off**2).sum()) / count, np.sqrt(share * (1 - share) / count))
        bins.append(Bin(low, high, count, share, float(found.sum() / count), float(error)))
    return bins
