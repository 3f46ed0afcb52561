"""Say how the rankings compare on held-out films, and whether the intervals of new users hold: sentences and tables."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.differences import Comparison
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import html_table

NAMES = {
    "posterior_average": "posterior average", "single_draw": "single draws", "popularity": "popularity", "random": "a random order",
    "ease": "EASE", "als": "implicit ALS", "posterior_mode": "a mode of the posterior",
}  # fmt: skip
"""Ranking -> its name in a sentence."""

OWN = ("posterior_average", "single_draw")
"""Rankings by the posterior itself."""


def compare_rankings(path: Path) -> str:
    """Return a sentence comparing the NDCG of the posterior average and of others, by intervals; empty without them."""
    if not path.exists():
        return ""
    table = read_table(path, texts=("ranking", "score"), numbers=("difference", "low", "high"))
    table = table[(table["score"] == "ndcg") & (table["ranking"] != "random")]
    groups: dict[str, list[str]] = {
        "better than": [],
        "worse than": [],
        "not clearly better or worse than": [],
    }
    for row in table.to_dict("records"):
        words = list(groups)[0 if row["low"] > 0 else 1 if row["high"] < 0 else 2]
        limits = f"{formats.fixed(row['low'], 3)} to {formats.fixed(row['high'], 3)}"
        groups[words].append(f"{NAMES.get(row['ranking'], row['ranking'])} ({limits})")
    said = [f"{words} {_listed(names)}" for words, names in groups.items() if names]
    if not said:
        return ""
    return f"By NDCG, the posterior average ranks held-out films {'; '.join(said)}. In brackets: 95% intervals, over users, of its NDCG minus theirs."


def describe_new_users(path: Path) -> str:
    """Return sentences on the intervals of users whom the chains have not seen; empty without such users."""
    numbers = (
        "num_users", "num_draws", "acceptance", "probability", "counts_covered", "counts_covered_se", "logits_covered",
        "logits_covered_se",
    )  # fmt: skip
    table = read_table(path, numbers=numbers) if path.exists() else pd.DataFrame()
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
    if files["activity.csv"].exists():
        numbers = ("group", "films_from", "films_to", "num_users", "ndcg", "ndcg_se")
        table = read_table(files["activity.csv"], texts=("ranking",), numbers=numbers)
        if not table.empty:
            note = "NDCG ± standard error, by the number of films that the rankings know a user to have watched."
            found.append(("By activity", html_table(_by_activity(table), "NDCG by activity"), note))
    if files["calibration.csv"].exists():
        numbers = ("low", "high", "num_cells", "predicted", "watched", "difference_se")
        table = read_table(files["calibration.csv"], numbers=numbers)
        if not table.empty:
            note = "Films hidden from the fold-in of new users, watched or not, by their predicted watch probability; errors are over users."
            found.append(("Calibration of watch probabilities", html_table(_bins(table), "Calibration"), note))
    return found


def _by_activity(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for _, group in table.groupby("group", sort=True):
        first = group.iloc[0]
        films = f"{formats.count(first['films_from'])} to {formats.count(first['films_to'])}"
        row: dict[str, str] = {"films": films, "users": formats.count(first["num_users"])}
        for each in group.to_dict("records"):
            name = NAMES.get(each["ranking"], each["ranking"])
            row[name] = f"{formats.fixed(each['ndcg'], 3)} ± {formats.fixed(each['ndcg_se'], 3)}"
        rows.append(row)
    return pd.DataFrame(rows)


def _bins(table: pd.DataFrame) -> pd.DataFrame:
    rows = [
        {
            "probability": f"{formats.share(row['low'])} to {formats.share(row['high'])}",
            "cells": formats.count(row["num_cells"]),
            "mean probability": formats.share(row["predicted"], 2),
            "watched": formats.share(row["watched"], 2),
            "difference": f"{formats.fixed(100 * (row['watched'] - row['predicted']), 2)} ± {formats.fixed(100 * row['difference_se'], 2)} points",
        }
        for row in table.to_dict("records")
    ]
    return pd.DataFrame(rows)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
