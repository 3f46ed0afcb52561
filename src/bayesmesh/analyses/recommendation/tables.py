"""Build the tables of ranked users: their films, genres and entropies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayesmesh.analyses._jackknife import jackknife_se
from bayesmesh.analyses.recommendation.calibration import PROBABILITY, Calibration
from bayesmesh.analyses.recommendation.ranking import Ranking
from bayesmesh.analyses.recommendation.scores import Ranked, entropy, left_out_entropies, mean_and_se, ratio_se
from bayesmesh.data.base import Column

GENRE_COLUMNS = ["user", "activity", "genre", "p_best"]


class RankedUser(NamedTuple):
    """A user whose films are ranked.

    Attributes:
        row: row of the watch matrix.
        user_id: name of the user in the dataset.
        activity: ``most``, ``least`` or ``chosen``.
        place: index of the user in the `Ranking`.
    """

    row: int
    user_id: object
    activity: str
    place: int


def top_table(
    user: RankedUser, ranking: Ranking, columns: Mapping[str, Column], genres: Sequence[Sequence[str]], num_films: int
) -> pd.DataFrame:
    """Return the first films of a user, by `p_best`, then `p_top`, then mean probability, then lower film index.

    Args:
        user: the user.
        ranking: rankings of all listed users.
        columns: film_id and title from the dataset; a missing title is empty, a missing film_id is the index.
        genres: genres of each film; empty if the dataset has none.
        num_films: largest number of rows; fewer if the user has fewer unwatched films.
    """
    p_best, p_top, mean, sd, watched = (values[user.place] for values in ranking[1:])
    films = {
        "user": user.row, "user_id": user.user_id, "activity": user.activity, "rank": 0,
        "film_id": columns.get("film_id", range(len(p_best))), "title": columns.get("title", ""),
        "genres": list(map("|".join, genres)) if genres else "",
        "p_best": p_best, "p_top": p_top, "mean_probability": mean, "sd_probability": sd,
    }  # fmt: skip
    order = np.lexsort((-mean, -p_top, -p_best))  # lexsort is stable: ties keep the order of the index
    listed = pd.DataFrame(films).iloc[order[~watched[order]][:num_films]]
    return listed.assign(rank=range(1, len(listed) + 1))


def genre_table(user: RankedUser, p_best: np.ndarray, genres: Sequence[Sequence[str]]) -> pd.DataFrame:
    """Return the share of draws whose best film has a genre, for every genre, largest first, then by name.

    A film with several genres counts for each, so the shares may add to more than 1.

    Args:
        user: the user.
        p_best: (films,), probability of being the best film.
        genres: genres of each film.
    """
    films = pd.DataFrame({"genre": [sorted(set(names)) for names in genres], "p_best": p_best}).explode("genre")
    shares = films.groupby("genre")["p_best"].sum().sort_values(ascending=False, kind="stable").reset_index()
    return shares.assign(user=user.row, activity=user.activity)[GENRE_COLUMNS]


def user_row(user: RankedUser, ranking: Ranking, num_chains: int, num_watched: int) -> dict[str, object]:
    """Return the concentration of a user's recommendations, with entropies in nats.

    ``num_watched`` counts all films that the user watched, held-out ones included. ``entropy`` is the entropy of the
    best film, ``entropy_sd`` its Monte Carlo standard deviation, which excludes bias (see `left_out_entropies`),
    ``entropy_top`` the entropy of the normalised probabilities of being among the best. ``entropy_minus_first`` is the
    entropy minus that of the first user, with an error over the same draws. ``entropy`` cannot exceed log
    ``num_draws``.
    """
    p_best, first = ranking.p_best[user.place], ranking.p_best[0]
    left_out, left_out_first = (left_out_entropies(ranking.best[:, place], num_chains) for place in (user.place, 0))
    return {
        "user": user.row,
        "user_id": user.user_id,
        "activity": user.activity,
        "num_watched": num_watched,
        "entropy": entropy(p_best),
        "entropy_sd": float(jackknife_se(left_out)),
        "entropy_minus_first": entropy(p_best) - entropy(first),
        "entropy_minus_first_sd": float(jackknife_se(left_out - left_out_first)),
        "entropy_top": entropy(ranking.p_top[user.place]),
        "num_films_ever_best": np.count_nonzero(p_best),
        "num_draws": len(ranking.best),
    }


NUM_GROUPS = 5
"""Number of groups of users by activity."""

NUM_REPLICATES = 2000
"""Number of bootstrap replicates over users."""

INTERVAL = 0.95
"""Probability of intervals of differences."""

DRAW_INTERVAL = 0.9
"""Probability of intervals over draws."""

AVERAGE = "posterior_average"

SCORES = ["recall", "ndcg", "average_precision", "novelty"]

SCORE_COLUMNS = [
    "ranking", "cutoff", "recall", "recall_se", "ndcg", "ndcg_se", "ndcg_ratio_se", "average_precision",
    "average_precision_se", "novelty", "novelty_se", "coverage", "ndcg_draws_low", "ndcg_draws_high", "num_users",
]  # fmt: skip
DIFFERENCE_COLUMNS = ["ranking", "score", "difference", "low", "high"]
ACTIVITY_COLUMNS = ["ranking", "group", "films_from", "films_to", "num_users", "recall", "recall_se", "ndcg", "ndcg_se"]
CALIBRATION_COLUMNS = ["low", "high", "num_cells", "predicted", "watched", "difference_se"]
NEW_USER_COLUMNS = [
    "num_users", "num_draws", "acceptance", "probability", "counts_covered", "counts_covered_se", "logits_covered",
    "logits_covered_se",
]  # fmt: skip


def score_table(rankings: Mapping[str, Ranked], cutoff: int) -> pd.DataFrame:
    """Return means over users with their standard errors, one row per ranking.

    ``ndcg_ratio_se`` is the error of the ratio to the NDCG of popularity for the same users; ``coverage`` is the share
    of films listed for anyone; ``ndcg_draws_low`` and ``ndcg_draws_high`` are an interval over individually ranked
    draws.
    """
    tail = (1 - DRAW_INTERVAL) / 2
    rows = []
    for name, ranked in rankings.items():
        scores = ranked.scores
        row: dict[str, object] = {"ranking": name, "cutoff": cutoff, "num_users": len(scores.ndcg)}
        for score in SCORES:
            row[score], row[f"{score}_se"] = mean_and_se(getattr(scores, score))
        row["ndcg_ratio_se"] = ratio_se(scores.ndcg, rankings["popularity"].scores.ndcg)
        row["coverage"] = (ranked.listed > 0).mean(axis=1).mean() if len(ranked.listed) else np.nan
        if len(ranked.draw_ndcg):
            limits = np.quantile(ranked.draw_ndcg.mean(axis=1), [tail, 1 - tail])
            row["ndcg_draws_low"], row["ndcg_draws_high"] = limits
        rows.append(row)
    return pd.DataFrame(rows, columns=SCORE_COLUMNS)


def difference_table(rankings: Mapping[str, Ranked], seed: int) -> pd.DataFrame:
    """Return the scores of the posterior average minus those of every other ranking, with bootstrap intervals over users.

    Users are resampled with replacement, the same users for both rankings of a difference.
    """
    tail = (1 - INTERVAL) / 2
    rows = []
    for name in (name for name in rankings if name != AVERAGE):
        for score in SCORES:
            ours, theirs = (getattr(rankings[each].scores, score) for each in (AVERAGE, name))
            means = bootstrap_means(ours - theirs, np.random.default_rng(seed))
            low, high = np.quantile(means, [tail, 1 - tail])
            rows.append((name, score, (ours - theirs).mean(), low, high))
    return pd.DataFrame(rows, columns=DIFFERENCE_COLUMNS)


def bootstrap_means(values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return means of samples of the values with replacement, (replicates,)."""
    size = max(1, 2**22 // len(values))
    parts = [
        values[generator.integers(len(values), size=(min(size, NUM_REPLICATES - start), len(values)))].mean(axis=1)
        for start in range(0, NUM_REPLICATES, size)
    ]
    return np.concatenate(parts)


def activity_table(rankings: Mapping[str, Ranked], num_watched: np.ndarray) -> pd.DataFrame:
    """Return scores by users' number of films: groups have about equal size, and equal counts share a group.

    Args:
        rankings: scores of the users.
        num_watched: (users,), number of films of each user that are known to the ranking.
    """
    if not rankings:
        return pd.DataFrame(columns=ACTIVITY_COLUMNS)
    limits = np.unique(np.quantile(num_watched, np.linspace(0, 1, NUM_GROUPS + 1)[1:-1], method="higher"))
    group = np.searchsorted(limits, num_watched, side="left")
    rows = []
    for name, ranked in rankings.items():
        for number in np.unique(group):
            mine = group == number
            counts = num_watched[mine]
            recalls, gains = (mean_and_se(values[mine]) for values in (ranked.scores.recall, ranked.scores.ndcg))
            rows.append((name, number + 1, counts.min(), counts.max(), mine.sum(), *recalls, *gains))
    return pd.DataFrame(rows, columns=ACTIVITY_COLUMNS)


def calibration_table(calibration: Calibration | None) -> pd.DataFrame:
    """Return the bins of watch probabilities; no rows if there are no unseen users."""
    return pd.DataFrame(calibration.bins if calibration else [], columns=CALIBRATION_COLUMNS)


def new_user_table(calibration: Calibration | None, acceptance: np.ndarray, num_draws: int) -> pd.DataFrame:
    """Return one row about the users whom the chains have not seen; no row if there are none.

    ``counts_covered`` is the share of users whose number of watched hidden cells lies in its interval, which is randomised because
    counts are discrete; ``logits_covered`` the share of true logits in theirs, for simulated data.
    """
    if calibration is None:
        return pd.DataFrame(columns=NEW_USER_COLUMNS)
    tail = (1 - PROBABILITY) / 2
    covered = (calibration.count_pit > tail) & (calibration.count_pit < 1 - tail)
    logits = calibration.covered_logits
    row = (
        len(covered), num_draws, acceptance.mean(), PROBABILITY, *mean_and_se(covered.astype(float)),
        *(mean_and_se(logits) if len(logits) else (np.nan, np.nan)),
    )  # fmt: skip
    return pd.DataFrame([row], columns=NEW_USER_COLUMNS)
