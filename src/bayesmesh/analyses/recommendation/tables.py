"""Build the tables of ranked users: their films, genres and entropies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayesmesh.analyses._jackknife import jackknife_se
from bayesmesh.analyses.recommendation.ranking import Ranking
from bayesmesh.analyses.recommendation.scores import entropy, left_out_entropies
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
