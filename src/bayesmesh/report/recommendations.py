"""Reads the tables of the recommendation stage: lists, genres, users and held-out scores."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

from bayesmesh.figures.documents import read_csv
from bayesmesh.store.layout import ExperimentLayout

__all__ = ["Film", "RankingScore", "UserList", "genre_colours", "ratio_to_popularity", "read_rankings", "read_users"]

_ORDER = {"most": 0, "least": 1, "chosen": 2}

NUM_COLOURS = 7
"""Genres that get a colour of their own, the most frequent; the others share one."""


@dataclasses.dataclass(frozen=True)
class Film:
    """A film of a user's list, with its posterior probability of being the user's best, and of being among the top."""

    rank: int
    title: str
    genres: tuple[str, ...]
    p_best: float
    p_top: float
    mean_probability: float
    sd_probability: float


@dataclasses.dataclass(frozen=True)
class UserList:
    """What is known of a ranked user; numbers of ``users.csv`` are NaN where it has no such user."""

    user: str
    user_id: str
    activity: str
    films: tuple[Film, ...]
    genres: tuple[tuple[str, float], ...]
    num_watched: float = math.nan
    entropy: float = math.nan
    entropy_sd: float = math.nan
    entropy_top: float = math.nan
    num_films_ever_best: float = math.nan
    num_draws: float = math.nan

    @property
    def heading(self) -> str:
        """Heading of the list."""
        return {"most": "Most active user", "least": "Least active user"}.get(self.activity, f"User {self.user_id}")


@dataclasses.dataclass(frozen=True)
class RankingScore:
    """A line of ``recommendations/scores.csv``: a ranking scored on held-out films at a cutoff."""

    ranking: str
    cutoff: int
    recall: float
    recall_se: float
    ndcg: float
    ndcg_se: float
    num_users: int

    @property
    def is_popularity(self) -> bool:
        """Whether this is the ranking that knows no user."""
        return "popular" in self.ranking.lower()


def read_users(layout: ExperimentLayout) -> list[UserList]:
    """Return the lists of all ranked users, the most and the least active first.

    Raises:
        StoreError: a file is damaged.
    """
    films: dict[str, list[Film]] = {}
    about: dict[str, tuple[str, str]] = {}
    for row in read_csv(layout.recommendations_top, ("user", "activity", "rank", "title", "genres", "p_best")):
        user = row.text("user")
        about[user] = (row.text("user_id") or user, row.text("activity"))
        films.setdefault(user, []).append(
            Film(
                rank=row.count("rank"),
                title=row.text("title"),
                genres=tuple(g for g in row.text("genres").split("|") if g),
                p_best=row.number("p_best"),
                p_top=row.number("p_top"),
                mean_probability=row.number("mean_probability"),
                sd_probability=row.number("sd_probability"),
            )
        )
    genres, users = _read_genres(layout.recommendations_genres), _read_user_numbers(layout.recommendations_users)
    lists = [
        UserList(
            user=user,
            user_id=user_id,
            activity=activity,
            films=tuple(sorted(films[user], key=lambda film: film.rank)),
            genres=tuple(genres.get(user, ())),
            **users.get(user, {}),
        )
        for user, (user_id, activity) in about.items()
    ]
    return sorted(lists, key=lambda item: _ORDER.get(item.activity, 3))


def _read_genres(path: Path) -> dict[str, list[tuple[str, float]]]:
    found: dict[str, list[tuple[str, float]]] = {}
    if path.exists():
        for row in read_csv(path, ("user", "genre", "p_best")):
            found.setdefault(row.text("user"), []).append((row.text("genre"), row.number("p_best")))
    for shares in found.values():
        shares.sort(key=lambda pair: (math.isnan(pair[1]), -pair[1] if not math.isnan(pair[1]) else 0.0))
    return found


def _read_user_numbers(path: Path) -> dict[str, dict[str, float]]:
    if not path.exists():
        return {}
    names = ("num_watched", "entropy", "entropy_sd", "entropy_top", "num_films_ever_best", "num_draws")
    rows = read_csv(path, ("user", "num_watched", "entropy"))
    return {row.text("user"): {name: row.number(name) for name in names} for row in rows}


def read_rankings(path: Path) -> list[RankingScore]:
    """Return the held-out scores, by cutoff and from the best NDCG.

    Raises:
        StoreError: the file is damaged.
    """
    scores = [
        RankingScore(
            ranking=row.text("ranking"),
            cutoff=row.count("cutoff"),
            recall=row.number("recall"),
            recall_se=row.number("recall_se"),
            ndcg=row.number("ndcg"),
            ndcg_se=row.number("ndcg_se"),
            num_users=row.count("num_users"),
        )
        for row in read_csv(path, ("ranking", "cutoff", "recall", "ndcg"))
    ]
    return sorted(scores, key=lambda s: (s.cutoff, math.isnan(s.ndcg), -s.ndcg if not math.isnan(s.ndcg) else 0.0))


def ratio_to_popularity(scores: list[RankingScore], score: RankingScore) -> float:
    """Return the NDCG of a ranking over that of popularity at the same cutoff; NaN without one to compare with."""
    for other in scores:
        if other.is_popularity and other.cutoff == score.cutoff and other.ndcg > 0:
            return score.ndcg / other.ndcg
    return math.nan


def genre_colours(lists: list[UserList]) -> dict[str, int]:
    """Return colour numbers of the genres, the most frequent first genres of films first; others are not in it."""
    weight: dict[str, float] = {}
    for item in lists:
        for film in item.films:
            for genre in film.genres[:1]:
                weight[genre] = weight.get(genre, 0.0) + 1.0
        for genre, p_best in item.genres:
            weight[genre] = weight.get(genre, 0.0) + (p_best if p_best > 0 else 0.0)
    ordered = sorted(weight, key=lambda genre: (-weight[genre], genre))
    return {genre: position for position, genre in enumerate(ordered[:NUM_COLOURS])}
