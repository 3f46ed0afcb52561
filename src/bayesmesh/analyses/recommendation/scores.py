"""Scores of rankings, and entropies of recommendations with their Monte Carlo error.

Gains are binary: a listed film was held out, or not. NumPy, float64.

References:
    Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques", doi:10.1145/582415.582418.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class UserScores(NamedTuple):
    """Scores of one ranking, per user with held-out films, (users,) float64 each.

    Attributes:
        recall: share of the held-out films that are listed.
        ndcg: normalised discounted cumulated gain.
        average_precision: mean over hits of the precision at their rank, relative to the best list.
        novelty: mean self-information of the listed films, in bits: -log2 of the share of training users who watched one.
    """

    recall: np.ndarray
    ndcg: np.ndarray
    average_precision: np.ndarray
    novelty: np.ndarray


def score_lists(films: np.ndarray, is_hidden: np.ndarray, information: np.ndarray) -> UserScores:
    """Score the lists of some users.

    Args:
        films: (users, cutoff), the first films.
        is_hidden: (users, films) bool, held-out films, at least one of each user.
        information: (films,), see `self_information`.
    """
    num_hidden = is_hidden.sum(axis=1)
    is_hit = np.take_along_axis(is_hidden, films, axis=1)
    precision = average_precision(is_hit, num_hidden)
    return UserScores(recall(is_hit, num_hidden), ndcg(is_hit, num_hidden), precision, information[films].mean(axis=1))


def self_information(popularity: np.ndarray, num_users: int) -> np.ndarray:
    """Return -log2 of the share of users who watched each film; a film that no one watched counts as if half a user had.

    >>> self_information(np.array([4, 1, 0]), 4)
    array([0., 2., 3.])
    """
    # Subtracted from 0, because a negated 0 would be shown as -0.
    return 0.0 - np.log2(np.maximum(popularity, 0.5) / num_users)


def average_precision(is_hit: np.ndarray, num_held_out: np.ndarray) -> np.ndarray:
    """Return the average precision of each user, (users,): 1 if the list begins with as many hits as possible.

    Args:
        is_hit: (users, cutoff) bool.
        num_held_out: (users,), at least 1.

    >>> average_precision(np.array([[True, False, True], [False, False, False]]), np.array([4, 1])).round(4)
    array([0.5556, 0.    ])
    """
    precision = np.cumsum(is_hit, axis=1) / np.arange(1, is_hit.shape[1] + 1)
    return (precision * is_hit).sum(axis=1) / np.minimum(num_held_out, is_hit.shape[1])


def random_average_precision(num_candidates: np.ndarray, num_held_out: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the expected average precision of a random order of each user's candidates, (users,).

    The film at rank r is a hit with probability h / n; given that, each of the r - 1 before it with (h - 1) / (n - 1).

    >>> random_average_precision(np.array([2]), np.array([1]), 2)
    array([0.75])
    """
    held, count = np.asarray(num_held_out, float)[:, None], np.asarray(num_candidates, float)[:, None]
    rank = np.arange(1, cutoff + 1)
    before = (held - 1) / np.maximum(1, count - 1)
    terms = held / count * (1 + (rank - 1) * before) / rank * (rank <= count)
    return terms.sum(axis=1) / np.minimum(num_held_out, cutoff)


def recall(is_hit: np.ndarray, num_held_out: np.ndarray) -> np.ndarray:
    """Return the share of each user's held-out films that are listed, (users,).

    Args:
        is_hit: (users, cutoff) bool, whether the film at that rank was held out.
        num_held_out: (users,), at least 1; the denominator, even if it exceeds the cutoff.

    >>> recall(np.array([[True, False, True], [False, False, False]]), np.array([4, 1]))
    array([0.5, 0. ])
    """
    return is_hit.sum(axis=1) / num_held_out


def ndcg(is_hit: np.ndarray, num_held_out: np.ndarray) -> np.ndarray:
    """Return the normalised discounted cumulated gain of each user, (users,).

    A hit at rank r (from 1) gains 1 / log2(r + 1); the ideal list starts with min(cutoff, held-out) hits.

    Args:
        is_hit: (users, cutoff) bool.
        num_held_out: (users,), at least 1.

    >>> ndcg(np.array([[False, True], [True, True]]), np.array([1, 5])).round(4)
    array([0.6309, 1.    ])
    """
    discount = _discounts(is_hit.shape[1])
    return is_hit @ discount / _ideal(num_held_out, discount)


def random_recall(num_candidates: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the expected recall of a random order of each user's candidates, (users,).

    Each held-out film is listed with the same probability, independent of their number.

    >>> random_recall(np.array([10, 2]), 4)
    array([0.4, 1. ])
    """
    return np.minimum(cutoff, num_candidates) / num_candidates


def random_ndcg(num_candidates: np.ndarray, num_held_out: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the expected NDCG of a random order of each user's candidates, (users,).

    >>> random_ndcg(np.array([2]), np.array([1]), 2).round(4)
    array([0.8155])
    """
    discount = _discounts(cutoff)
    gained = np.cumsum(discount)[np.minimum(cutoff, num_candidates) - 1]
    return num_held_out / num_candidates * gained / _ideal(num_held_out, discount)


def _discounts(cutoff: int) -> np.ndarray:
    return 1.0 / np.log2(np.arange(2, cutoff + 2))


def _ideal(num_held_out: np.ndarray, discount: np.ndarray) -> np.ndarray:
    return np.cumsum(discount)[np.minimum(len(discount), num_held_out) - 1]


def mean_and_se(values: np.ndarray) -> tuple[float, float]:
    """Return the mean over users and its standard error; NaN for the error of one user.

    >>> mean_and_se(np.array([1.0, 3.0]))
    (2.0, 1.0)
    """
    if len(values) < 2:
        return float(values.mean()), math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def entropy(weights: np.ndarray) -> float:
    """Return the entropy in nats of a distribution given up to a factor; 0 when all weights are 0.

    >>> round(entropy(np.array([2, 2, 0])), 4)
    0.6931
    """
    positive = np.asarray(weights, np.float64)[np.asarray(weights) > 0]
    if not len(positive):
        return 0.0
    share = positive / positive.sum()
    return float(max(0.0, -(share * np.log(share)).sum()))


def left_out_entropies(best: np.ndarray, num_chains: int, num_batches: int = 10) -> np.ndarray:
    """Return the entropy of the best film without each batch of draws, (batches,), for its jackknife Monte Carlo error.

    With four or more chains a batch is a chain, so variation between chains counts. With fewer, a batch is a run of
    consecutive draws that should exceed most of the autocorrelation. The error excludes the bias: an entropy
    estimated from n draws is too low, by about (films ever best - 1) / (2 n) for independent draws, and never above
    log n.

    Args:
        best: (draws,), index of the best film, ordered by draw, then by chain.
        num_chains: number of chains.
        num_batches: number of batches for fewer than four chains.

    >>> left_out_entropies(np.array([3, 3, 3, 3]), num_chains=1)
    array([0., 0., 0., 0.])
    """
    by_draw = best.reshape(-1, num_chains)
    batches = list(by_draw.T) if num_chains >= 4 else np.array_split(by_draw, min(num_batches, len(by_draw)))
    # Counts start at -1, which stands for a draw without an unwatched film.
    counts = np.stack([np.bincount(np.ravel(batch) + 1, minlength=int(best.max()) + 2) for batch in batches])
    return np.array([entropy(counts.sum(axis=0) - one) for one in counts])


def ratio_se(values: np.ndarray, baseline: np.ndarray) -> float:
    """Return the standard error of the ratio of two means over the same users, by the delta method; NaN for one user.

    >>> round(ratio_se(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0])), 4)
    0.0
    """
    if len(values) < 2 or not baseline.mean() > 0:
        return math.nan
    deviation = values - values.mean() / baseline.mean() * baseline
    return float(deviation.std(ddof=1) / math.sqrt(len(values)) / baseline.mean())


class Ranked(NamedTuple):
    """The lists of a ranking, and their scores.

    Attributes:
        scores: of every user with held-out films.
        listed: (lists, films) int64, how many users each film is listed for; one row per draw if draws are ranked
            individually.
        draw_ndcg: (draws, users), NDCG of draws ranked individually; no rows for other rankings.
    """

    scores: UserScores
    listed: np.ndarray
    draw_ndcg: np.ndarray


def join_users(pieces: Sequence[Mapping[str, Ranked]]) -> dict[str, Ranked]:
    """Join rankings of disjoint sets of users into those of all users."""
    joined = {}
    for name in pieces[0]:
        parts = [piece[name] for piece in pieces]
        scores = UserScores(*map(np.concatenate, zip(*(part.scores for part in parts), strict=True)))
        listed = np.sum([part.listed for part in parts], axis=0)
        joined[name] = Ranked(scores, listed, np.concatenate([part.draw_ndcg for part in parts], axis=1))
    return joined


def rank_once(films: np.ndarray, is_hidden: np.ndarray, information: np.ndarray) -> Ranked:
    """Return the scores of one list per user, (users, cutoff)."""
    listed = np.bincount(films.ravel(), minlength=is_hidden.shape[1])[None]
    return Ranked(score_lists(films, is_hidden, information), listed, np.empty((0, len(films))))


def rank_draws(lists: Sequence[Ranked]) -> Ranked:
    """Return the mean scores of draws that are ranked individually."""
    scores = UserScores(*(np.mean(values, axis=0) for values in zip(*(one.scores for one in lists), strict=True)))
    return Ranked(scores, np.concatenate([one.listed for one in lists]), np.stack([one.scores.ndcg for one in lists]))


def rank_randomly(is_watched: np.ndarray, is_hidden: np.ndarray, information: np.ndarray, cutoff: int) -> Ranked:
    """Return the expected scores of a random order of each user's unwatched films."""
    free, num_hidden = ~is_watched, is_hidden.sum(axis=1)
    count = free.sum(axis=1)
    scores = UserScores(
        random_recall(count, cutoff),
        random_ndcg(count, num_hidden, cutoff),
        random_average_precision(count, num_hidden, cutoff),
        (free @ information) / count,
    )
    return Ranked(scores, np.zeros((0, is_hidden.shape[1]), np.int64), np.empty((0, len(count))))


def list_first(scores: np.ndarray, is_watched: np.ndarray, cutoff: int) -> np.ndarray:
    """Return the first unwatched films of every user, (users, cutoff); ties go to the lower index.

    Args:
        scores: (users, films).
        is_watched: (users, films) bool, films that are not listed.
        cutoff: films to list.
    """
    free = np.where(is_watched, -np.inf, scores)
    # Keep the last listed score and all scores equal to it, so that ties are broken by index.
    limit = -np.partition(-free, cutoff - 1, axis=1)[:, cutoff - 1 : cutoff]
    listed = np.empty((len(free), cutoff), np.int64)
    for user, (row, least) in enumerate(zip(free, limit, strict=True)):
        candidates = np.flatnonzero(row >= least)
        listed[user] = candidates[np.argsort(-row[candidates], kind="stable")[:cutoff]]
    return listed
