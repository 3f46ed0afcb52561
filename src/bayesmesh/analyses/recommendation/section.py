"""Show recommendations: a section of the page and a cell of the index."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.formats import SAME, Comparison, error_text
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render

MAX_FILMS = 10

_ORDER = {"most": 0, "least": 1, "chosen": 2}

NUM_COLOURS = 7
"""Number of most frequent genres with their own colour; the others share one."""

_HEADINGS = {"most": "Most active user", "least": "Least active user"}

_NUMBERS = (
    "num_watched", "entropy", "entropy_sd", "entropy_minus_first", "entropy_minus_first_sd", "entropy_top",
    "num_films_ever_best", "num_draws",
)  # fmt: skip

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
        full_width=_full_width(users),
        sentence=compare_users(extremes),
        rankings=rankings.to_dict("records"),
        names=NAMES,
        said=[
            each
            for each in (compare_rankings(files["differences.csv"]), describe_new_users(files["new_users.csv"]))
            if each
        ],
        tables=score_tables(files),
        max_films=MAX_FILMS,
    )
    best = best_ratio(rankings)
    return Section(body, [KeyNumber("NDCG relative to popularity", *_ratio_text(best))] if best else [])


def describe(files: Mapping[str, Path]) -> str:
    """Return the posterior's better ranking relative to popularity; empty without held-out scores."""
    best = best_ratio(read_rankings(files["scores.csv"]))
    return f"NDCG {_ratio_text(best)[0]} of popularity" if best else ""


def best_ratio(rankings: pd.DataFrame) -> Comparison | None:
    """Return the larger NDCG ratio to popularity of the posterior's own rankings at the smallest cutoff, minus 1, or None."""
    others = rankings[rankings["ranking"].isin(OWN) & (rankings["ratio"] > 0)]
    others = others[others["cutoff"] == others["cutoff"].min()]
    if others.empty:
        return None
    best = others.loc[others["ratio"].idxmax()]
    return Comparison(float(best["ratio"]) - 1, float(best["ndcg_ratio_se"]))


def _ratio_text(best: Comparison) -> tuple[str, str]:
    """Return a ratio with its error, and what to say of it."""
    ratio = f"× {formats.fixed(1 + best.difference, 2)}{error_text(best.error, 2)}"
    return ratio, best.words(
        "on held-out films", "on held-out films, worse than popularity", f"on held-out films: {SAME}"
    )


def _full_width(users: Sequence[User]) -> float:
    """Return the probability that a bar of full width stands for: the largest of any bar, of films and of genres."""
    of_films = [film[name] for user in users for film in user["films"] for name in ("p_best", "p_top")]
    of_genres = [p_best for user in users for _, p_best in user["genres"]]
    return max((value for value in of_films + of_genres if math.isfinite(value)), default=0.0) or 1.0


def compare_users(users: Sequence[User]) -> str:
    """Compare the uncertainty about the best film of the most and of the least active user."""
    by_activity = {user["activity"]: user for user in users}
    most, least = by_activity.get("most"), by_activity.get("least")
    if most is None or least is None or not (math.isfinite(most["entropy"]) and math.isfinite(least["entropy"])):
        return ""
    both = f"{_openness('most', most)} {_openness('least', least)}"
    if _is_saturated(min(most, least, key=lambda user: float(user["entropy"]))):
        return f"{both} There are too few draws to compare the two users."
    difference = Comparison(least["entropy_minus_first"], least["entropy_minus_first_sd"])
    size = f"by {formats.fixed(abs(difference.difference), 2)}{error_text(difference.error, 2)} nats"
    relation = difference.words(
        f"The posterior is less certain about the least active user than about the most active one, {size}.",
        f"The posterior is less certain about the most active user than about the least active one, {size}.",
        f"The two entropies show {SAME}: {difference.text(2)} nats.",
    )
    return f"{both} {relation}"


def _openness(activity: str, user: User) -> str:
    watched = "" if math.isnan(user["num_watched"]) else f", who watched {formats.count(user['num_watched'])} films,"
    num_films = formats.real(math.exp(min(user["entropy"], 700.0)), 2)
    bound = ""
    if _is_saturated(user):
        limit = formats.fixed(math.log(user["num_draws"]), 2)
        bound = f" (too low: {formats.count(user['num_draws'])} draws limit it to {limit})"
    return (
        f"For the {activity} active user{watched} the best unwatched film has an entropy of "
        f"{formats.fixed(user['entropy'], 2)}{error_text(user['entropy_sd'], 2)} nats, equivalent to {num_films} equally "
        f"likely films{bound}."
    )


def _is_saturated(user: User) -> bool:
    """Return whether the number of draws, not the posterior, limits the entropy."""
    return bool(user["num_draws"] > 1 and user["entropy"] >= 0.8 * math.log(user["num_draws"]))


def read_users(files: Mapping[str, Path]) -> list[User]:
    """Return the lists of all ranked users, the most and the least active first.

    Raises:
        StoreError: a file is damaged.
    """
    of_films = ("rank", "p_best", "p_top", "mean_probability", "sd_probability")
    top = read_table(files["top.csv"], texts=("user", "user_id", "activity", "title", "genres"), numbers=of_films)
    top["genres"] = [[genre for genre in names.split("|") if genre] for names in top["genres"]]
    genres = read_table(files["genres.csv"], texts=("user", "genre"), numbers=("p_best",))
    genres = genres.sort_values("p_best", ascending=False, kind="stable")
    top = top.merge(read_table(files["users.csv"], texts=("user",), numbers=_NUMBERS), on="user", how="left")
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


def read_rankings(path: Path) -> pd.DataFrame:
    """Return the held-out scores, sorted by cutoff and descending NDCG; without rows if there are none.

    Adds the columns ``is_popularity``, true for the ranking that ignores the user, and ``ratio``, the NDCG relative to
    that of popularity at the same cutoff, NaN if that is missing.

    Raises:
        StoreError: the file is damaged.
    """
    numbers = (
        "cutoff", "recall", "recall_se", "ndcg", "ndcg_se", "ndcg_ratio_se", "average_precision", "average_precision_se",
        "novelty", "coverage", "num_users",
    )  # fmt: skip
    scores = read_table(path, texts=("ranking",), numbers=numbers)
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


NAMES = {
    "posterior_average": "posterior average", "single_draw": "single draws", "popularity": "popularity", "random": "a random order",
    "ease": "EASE", "als": "implicit ALS", "posterior_mode": "a mode of the posterior",
}  # fmt: skip
"""Ranking -> its name in a sentence."""

OWN = ("posterior_average", "single_draw")
"""Rankings by the posterior itself."""


def compare_rankings(path: Path) -> str:
    """Return a sentence comparing the NDCG of the posterior average and of others, by intervals; empty without them."""
    table = read_table(path, texts=("ranking", "score"), numbers=("difference", "low", "high"))
    table = table[(table["score"] == "ndcg") & (table["ranking"] != "random")]
    named = [NAMES.get(name, name) for name in table["ranking"]]
    ranked = formats.ranked_by_interval(zip(named, table["low"], table["high"], strict=True))
    if not ranked:
        return ""
    return f"By NDCG, the posterior average ranks held-out films {ranked}. In brackets: 95% intervals, over users, of its NDCG minus theirs."


def describe_new_users(path: Path) -> str:
    """Return sentences on the intervals of users whom the chains have not seen; empty without such users."""
    numbers = (
        "num_users", "num_draws", "acceptance", "probability", "counts_covered", "counts_covered_se", "logits_covered",
        "logits_covered_se",
    )  # fmt: skip
    table = read_table(path, numbers=numbers)
    if table.empty:
        return ""
    row = table.to_dict("records")[0]
    wanted = row["probability"]
    said = [
        f"{formats.count(row['num_users'])} users were withheld from the chains and folded in with {formats.count(row['num_draws'])} draws of the films.",
        _covered("numbers of watched films in the hidden part of the films", row, "counts", wanted),
    ]
    if row["logits_covered"] >= 0:
        said.append(_covered("true logits", row, "logits", wanted))
    return " ".join(said)


def _covered(what: str, row: Mapping[Hashable, float], name: str, wanted: float) -> str:
    share, error = row[f"{name}_covered"], row[f"{name}_covered_se"]
    words = Comparison(share - wanted, error).words(
        "more than they should, so they are too wide",
        "fewer than they should, so they are too narrow",
        "as they should, within the error",
    )
    return f"The {formats.share(wanted, 0)} intervals contain {formats.share(share)} ± {formats.share(error)} of the {what}: {words}."


def score_tables(files: Mapping[str, Path]) -> Sequence[tuple[str, Markup, str]]:
    """Return heading, table and note of the tables by activity and of calibration, without empty ones."""
    found = []
    numbers = ("group", "films_from", "films_to", "num_users", "ndcg", "ndcg_se")
    table = read_table(files["activity.csv"], texts=("ranking",), numbers=numbers)
    if not table.empty:
        note = "NDCG ± standard error, by the number of films that the rankings know a user to have watched."
        found.append(("By activity", html_table(_by_activity(table), "NDCG by activity"), note))
    numbers = ("low", "high", "num_cells", "predicted", "watched", "difference_se")
    table = read_table(files["calibration.csv"], numbers=numbers)
    if not table.empty:
        note = "Films hidden from the fold-in of new users, watched or not, by their predicted watch probability; errors are over users."
        found.append(("Calibration of watch probabilities", html_table(_bins(table), "Calibration"), note))
    return found


def _by_activity(table: pd.DataFrame) -> list[dict[str, str]]:
    rows = []
    for _, group in table.groupby("group", sort=True):
        first = group.iloc[0]
        films = f"{formats.count(first['films_from'])} to {formats.count(first['films_to'])}"
        row: dict[str, str] = {"films": films, "users": formats.count(first["num_users"])}
        for each in group.to_dict("records"):
            name = NAMES.get(each["ranking"], each["ranking"])
            row[name] = f"{formats.fixed(each['ndcg'], 3)} ± {formats.fixed(each['ndcg_se'], 3)}"
        rows.append(row)
    return rows


def _bins(table: pd.DataFrame) -> list[dict[str, str]]:
    return [
        {
            "probability": f"{formats.share(row['low'])} to {formats.share(row['high'])}",
            "cells": formats.count(row["num_cells"]),
            "mean probability": formats.share(row["predicted"], 2),
            "watched": formats.share(row["watched"], 2),
            "difference": f"{formats.fixed(100 * (row['watched'] - row['predicted']), 2)} ± {formats.fixed(100 * row['difference_se'], 2)} points",
        }
        for row in table.to_dict("records")
    ]
