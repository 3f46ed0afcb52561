"""Show recommendations: a section of the page and a cell of the index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesmesh.figures import formats
from bayesmesh.figures.documents import read_table
from bayesmesh.figures.sections import KeyNumber, Section, render

MAX_FILMS = 10

_ORDER = {"most": 0, "least": 1, "chosen": 2}

NUM_COLOURS = 7
"""Number of most frequent genres with their own colour; the others share one."""

_HEADINGS = {"most": "Most active user", "least": "Least active user"}

_NUMBERS = ("num_watched", "entropy", "entropy_sd", "entropy_top", "num_films_ever_best", "num_draws")

User = dict[str, Any]
"""A ranked user: ``heading``, ``user_id``, ``activity``; ``films``, records of ``top.csv`` by rank, their genres as a list;
``genres``, pairs of a genre and the probability that the best film has it, the largest first; and the columns `_NUMBERS` of
``users.csv``, NaN if it lacks the user."""


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was ranked.

    Raises:
        StoreError: a file is damaged.
    """
    users, rankings = read_users(files), read_rankings(files["scores.csv"])
    if not users and rankings.empty:
        return None
    extremes = [user for user in users if user["activity"] in _HEADINGS]
    shown = extremes or users[:2]
    body = render(
        Path(__file__).with_name("section.html"),
        users=shown,
        others=[user for user in users if user not in shown],
        colours=genre_colours(users),
        full_width=_largest(film[name] for user in users for film in user["films"] for name in ("p_best", "p_top")),
        genre_width=_largest(p_best for user in users for _, p_best in user["genres"]),
        sentence=compare_users(extremes),
        rankings=rankings.to_dict("records"),
        max_films=MAX_FILMS,
    )
    ratio = best_ratio(rankings)
    number = KeyNumber("NDCG relative to popularity", f"× {formats.fixed(ratio, 2)}", "on held-out films")
    return Section(body, [number] if math.isfinite(ratio) else [])


def describe(files: Mapping[str, Path]) -> str:
    """Return the best ranking relative to popularity; empty without held-out scores."""
    ratio = best_ratio(read_rankings(files["scores.csv"]))
    return f"NDCG × {formats.fixed(ratio, 2)} of popularity" if math.isfinite(ratio) else ""


def best_ratio(rankings: pd.DataFrame) -> float:
    """Return the largest NDCG ratio to popularity at the smallest cutoff; NaN without one."""
    others = rankings[~rankings["is_popularity"] & (rankings["ratio"] > 0)]
    return float(others.loc[others["cutoff"] == others["cutoff"].min(), "ratio"].max())


def _largest(values: Iterable[float]) -> float:
    return max((value for value in values if math.isfinite(value)), default=0.0) or 1.0


def compare_users(users: Sequence[User]) -> str:
    """Compare the uncertainty about the best film of the most and of the least active user."""
    by_activity = {user["activity"]: user for user in users}
    most, least = by_activity.get("most"), by_activity.get("least")
    if most is None or least is None or not (math.isfinite(most["entropy"]) and math.isfinite(least["entropy"])):
        return ""
    difference = least["entropy"] - most["entropy"]
    wider, other = ("least", "most") if difference > 0 else ("most", "least")
    return (
        f"{_openness('most', most)} {_openness('least', least)} The posterior is less certain about the {wider} active "
        f"user than about the {other} active one, by {formats.fixed(abs(difference), 2)} nats."
    )


def _openness(activity: str, user: User) -> str:
    watched = "" if math.isnan(user["num_watched"]) else f", who watched {formats.count(user['num_watched'])} films,"
    error = "" if math.isnan(user["entropy_sd"]) else f" ± {formats.fixed(user['entropy_sd'], 2)}"
    num_films = formats.real(math.exp(min(user["entropy"], 700.0)), 2)
    return (
        f"For the {activity} active user{watched} the best unwatched film has an entropy of "
        f"{formats.fixed(user['entropy'], 2)}{error} nats, equivalent to {num_films} equally likely "
        f"films{_saturation(user)}."
    )


def _saturation(user: User) -> str:
    """Return a remark if the number of draws, not the posterior, limits the entropy."""
    if not user["num_draws"] > 1 or user["entropy"] < 0.8 * math.log(user["num_draws"]):
        return ""
    bound = formats.fixed(math.log(user["num_draws"]), 2)
    return f" (too low: {formats.count(user['num_draws'])} draws limit it to {bound})"


def read_users(files: Mapping[str, Path]) -> list[User]:
    """Return the lists of all ranked users, the most and the least active first; empty without lists.

    Raises:
        StoreError: a file is damaged.
    """
    if not files["top.csv"].exists():
        return []
    of_films = ("rank", "p_best", "p_top", "mean_probability", "sd_probability")
    top = read_table(files["top.csv"], texts=("user", "user_id", "activity", "title", "genres"), numbers=of_films)
    top["genres"] = [[genre for genre in names.split("|") if genre] for names in top["genres"]]
    genres = _read(files["genres.csv"], ("user", "genre"), ("p_best",)).sort_values(
        "p_best", ascending=False, kind="stable"
    )
    top = top.merge(_read(files["users.csv"], ("user",), _NUMBERS), on="user", how="left")
    lists = []
    for user, films in top.sort_values("rank", kind="stable").groupby("user", sort=False):
        first, shares = films.iloc[0], genres[genres["user"] == user]
        user_id, activity = first["user_id"] or str(user), first["activity"]
        about = {
            "user_id": user_id,
            "activity": activity,
            "heading": _HEADINGS.get(activity, f"User {user_id}"),
            "films": films.to_dict("records"),
            "genres": list(zip(shares["genre"], shares["p_best"], strict=True)),
        }
        lists.append(about | {name: float(first[name]) for name in _NUMBERS})
    return sorted(lists, key=lambda item: _ORDER.get(item["activity"], 3))


def _read(path: Path, texts: Sequence[str], numbers: Sequence[str]) -> pd.DataFrame:
    """Return a table; without rows if the file does not exist."""
    return read_table(path, texts=texts, numbers=numbers) if path.exists() else pd.DataFrame(columns=[*texts, *numbers])


def read_rankings(path: Path) -> pd.DataFrame:
    """Return the held-out scores, sorted by cutoff and descending NDCG; without rows if there are none.

    Adds the columns ``is_popularity``, true for the ranking that ignores the user, and ``ratio``, the NDCG relative to
    that of popularity at the same cutoff, NaN if that is missing.

    Raises:
        StoreError: the file is damaged.
    """
    numbers = ("cutoff", "recall", "recall_se", "ndcg", "ndcg_se", "num_users")
    scores = _read(path, ("ranking",), numbers)
    scores = scores.sort_values(["cutoff", "ndcg"], ascending=[True, False], kind="stable")
    scores["is_popularity"] = scores["ranking"].astype(str).str.contains("popular", case=False)
    popularity = scores[scores["is_popularity"] & (scores["ndcg"] > 0)].drop_duplicates("cutoff")
    scores["ratio"] = scores["ndcg"] / scores["cutoff"].map(popularity.set_index("cutoff")["ndcg"])
    return scores.reset_index(drop=True)


def genre_colours(lists: Sequence[User]) -> dict[str, int]:
    """Return colour numbers of the most frequent genres; other genres are not included."""
    weight: dict[str, float] = {}
    for item in lists:
        counted = [(film["genres"][0], 1.0) for film in item["films"] if film["genres"]]
        for genre, share in [*counted, *item["genres"]]:
            weight[genre] = weight.get(genre, 0.0) + float(np.nan_to_num(share))
    ordered = sorted(weight, key=lambda genre: (-weight[genre], genre))
    return {genre: position for position, genre in enumerate(ordered[:NUM_COLOURS])}
