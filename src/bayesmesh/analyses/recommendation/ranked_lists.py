"""Score lists of films, and join the scores of users from several blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.recommendation.scores import (
    UserScores,
    random_average_precision,
    random_ndcg,
    random_recall,
    score_lists,
)


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
