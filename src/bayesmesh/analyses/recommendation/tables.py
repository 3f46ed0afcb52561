"""Build and write the tables of recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayesmesh.analyses.recommendation.held_out import UserScores
from bayesmesh.analyses.recommendation.ranking import Ranking
from bayesmesh.analyses.recommendation.ranking_scores import entropy, jackknife_entropy_sd, mean_and_se
from bayesmesh.data.base import Column
from bayesmesh.files import write_text

__all__ = [
    "GENRE_COLUMNS",
    "SCORE_COLUMNS",
    "TOP_COLUMNS",
    "USER_COLUMNS",
    "RankedUser",
    "genre_rows",
    "score_rows",
    "top_rows",
    "user_row",
    "write_table",
]

TOP_COLUMNS = [
    "user", "user_id", "activity", "rank", "film_id", "title", "genres", "p_best", "p_top", "mean_probability",
    "sd_probability",
]  # fmt: skip
GENRE_COLUMNS = ["user", "activity", "genre", "p_best"]
USER_COLUMNS = [
    "user", "user_id", "activity", "num_watched", "entropy", "entropy_sd", "entropy_top", "num_films_ever_best",
    "num_draws",
]  # fmt: skip
SCORE_COLUMNS = ["ranking", "cutoff", "recall", "recall_se", "ndcg", "ndcg_se", "num_users"]


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


def top_rows(
    user: RankedUser, ranking: Ranking, columns: Mapping[str, Column], num_films: int
) -> list[dict[str, object]]:
    """Return the first films of a user, by `p_best`, then `p_top`, then mean probability, then lower film index.

    Args:
        user: the user.
        ranking: rankings of all listed users.
        columns: film_id, title and genres from the dataset; missing ones are empty, a missing film_id is the index.
        num_films: most rows; fewer if the user has fewer unwatched films.
    """
    place = user.place
    p_best, p_top, mean = ranking.p_best[place], ranking.p_top[place], ranking.mean[place]
    order = np.lexsort((-mean, -p_top, -p_best))  # lexsort is stable: ties keep the order of the index
    listed = order[~ranking.watched[place, order]][:num_films]
    return [
        {
            "user": user.row,
            "user_id": user.user_id,
            "activity": user.activity,
            "rank": rank,
            "film_id": columns["film_id"][film] if "film_id" in columns else film,
            "title": columns["title"][film] if "title" in columns else "",
            "genres": "|".join(columns["genres"][film]) if "genres" in columns else "",
            "p_best": p_best[film],
            "p_top": p_top[film],
            "mean_probability": mean[film],
            "sd_probability": ranking.sd[place, film],
        }
        for rank, film in enumerate(listed.tolist(), start=1)
    ]


def genre_rows(user: RankedUser, p_best: np.ndarray, genres: Sequence[Sequence[str]]) -> list[dict[str, object]]:
    """Return the share of draws whose best film has a genre, for every genre, largest first, then by name.

    A film with several genres counts for each, so the shares may add to more than 1.

    Args:
        user: the user.
        p_best: (films,), probability of being the best film.
        genres: genres of each film.
    """
    share = dict.fromkeys(sorted({genre for names in genres for genre in names}), 0.0)
    for film in np.flatnonzero(p_best).tolist():
        for genre in set(genres[film]):
            share[genre] += float(p_best[film])
    ordered = sorted(share.items(), key=lambda item: -item[1])
    return [{"user": user.row, "activity": user.activity, "genre": g, "p_best": p} for g, p in ordered]


def user_row(user: RankedUser, ranking: Ranking, num_chains: int, num_watched: int) -> dict[str, object]:
    """Return the concentration of a user's recommendations, with entropies in nats.

    ``num_watched`` counts all films that the user watched, held-out ones included.
    ``entropy`` is the entropy of the best film, ``entropy_sd`` its Monte Carlo standard deviation without bias (see
    `jackknife_entropy_sd`), ``entropy_top`` the entropy of the normalised probabilities of being among the best.
    ``entropy`` cannot exceed log ``num_draws``.
    """
    place = user.place
    best = ranking.best[:, place]
    return {
        "user": user.row,
        "user_id": user.user_id,
        "activity": user.activity,
        "num_watched": num_watched,
        "entropy": entropy(ranking.p_best[place]),
        "entropy_sd": jackknife_entropy_sd(best, num_chains) if best.min() >= 0 else 0.0,
        "entropy_top": entropy(ranking.p_top[place]),
        "num_films_ever_best": int(np.count_nonzero(ranking.p_best[place])),
        "num_draws": len(best),
    }


def score_rows(scores: Mapping[str, UserScores], cutoff: int) -> list[dict[str, object]]:
    """Return means over users with their standard errors, one row per ranking."""
    rows = []
    for name, per_user in scores.items():
        (recall, recall_se), (ndcg, ndcg_se) = mean_and_se(per_user.recall), mean_and_se(per_user.ndcg)
        values = (name, cutoff, recall, recall_se, ndcg, ndcg_se, len(per_user.recall))
        rows.append(dict(zip(SCORE_COLUMNS, values, strict=True)))
    return rows


def write_table(path: Path, rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Write rows as CSV atomically; without rows only the header."""
    write_text(path, pd.DataFrame(list(rows), columns=list(columns)).to_csv(index=False))
