"""Show recommendations: a section of the page and a cell of the index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from bayesmesh.analyses.recommendation.user_lists import UserList, genre_colours, read_rankings, read_users
from bayesmesh.figures import formats
from bayesmesh.figures.sections import KeyNumber, Section, render

__all__ = ["best_ratio", "build_section", "compare_users", "describe"]

MAX_FILMS = 10


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was ranked.

    Raises:
        StoreError: a file is damaged.
    """
    users, rankings = read_users(files), read_rankings(files["scores.csv"])
    if not users and rankings.empty:
        return None
    extremes = [user for user in users if user.activity in ("most", "least")]
    shown = extremes or users[:2]
    body = render(
        Path(__file__).with_name("section.html"),
        users=shown,
        others=[user for user in users if user not in shown],
        colours=genre_colours(users),
        full_width=_largest(film[name] for user in users for film in user.films for name in ("p_best", "p_top")),
        genre_width=_largest(p_best for user in users for _, p_best in user.genres),
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


def compare_users(users: Sequence[UserList]) -> str:
    """Compare the uncertainty about the best film of the most and of the least active user."""
    by_activity = {user.activity: user for user in users}
    most, least = by_activity.get("most"), by_activity.get("least")
    if most is None or least is None or not (math.isfinite(most.entropy) and math.isfinite(least.entropy)):
        return ""
    difference = least.entropy - most.entropy
    wider, other = ("least", "most") if difference > 0 else ("most", "least")
    return (
        f"{_openness('most', most)} {_openness('least', least)} The posterior is less certain about the {wider} active "
        f"user than about the {other} active one, by {formats.fixed(abs(difference), 2)} nats."
    )


def _openness(activity: str, user: UserList) -> str:
    watched = "" if math.isnan(user.num_watched) else f", who watched {formats.count(user.num_watched)} films,"
    error = "" if math.isnan(user.entropy_sd) else f" ± {formats.fixed(user.entropy_sd, 2)}"
    return (
        f"For the {activity} active user{watched} the best unwatched film has an entropy of "
        f"{formats.fixed(user.entropy, 2)}{error} nats, equivalent to {formats.real(math.exp(min(user.entropy, 700.0)), 2)} "
        f"equally likely films{_saturation(user)}."
    )


def _saturation(user: UserList) -> str:
    """Return a remark if the number of draws, not the posterior, limits the entropy."""
    if not user.num_draws > 1 or user.entropy < 0.8 * math.log(user.num_draws):
        return ""
    bound = formats.fixed(math.log(user.num_draws), 2)
    return f" (too low: {formats.count(user.num_draws)} draws limit it to {bound})"
