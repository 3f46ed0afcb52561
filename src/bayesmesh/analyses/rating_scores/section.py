"""Show how well hidden ratings are predicted: a section of the page and a cell of the index."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render

NAMES = {
    "posterior_average": "the posterior average", "single_draw": "a single draw",
    "biases": "biases of users and items", "mean": "the mean of all ratings",
}  # fmt: skip
"""Prediction -> what a sentence calls it."""

AVERAGE = "posterior_average"

_LIMITED = ("rmse", "mae", "rmse_less_average", "mae_less_average")

_NUMBERS = (
    *(f"{name}{end}" for name in _LIMITED for end in ("", "_low", "_high")), "rmse_of_draws_q5", "rmse_of_draws_q95", "penalty",
    "num_draws", "num_ratings", "num_users", "num_given",
)  # fmt: skip

Row = Mapping[Hashable, Any]


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was computed.

    Raises:
        StoreError: a file is damaged.
    """
    if not files["scores.csv"].exists() or not files["coverage.csv"].exists():
        return None
    scores = _scores(files["scores.csv"])
    coverage = _records(
        read_table(files["coverage.csv"], numbers=("probability", "covered", "covered_low", "covered_high"))
    )
    average = _average(scores)
    body = render(
        Path(__file__).with_name("section.html"),
        sentences=[*describe_new_users(average), compare_errors(scores), *describe_coverage(coverage)],
        scores=html_table(_score_table(scores), "Errors of predicted ratings"),
        coverage=html_table(_coverage_table(coverage), "Coverage of intervals"),
        penalty=next((row["penalty"] for row in scores if row["prediction"] == "biases"), 0.0),
        average=average,
    )
    number = KeyNumber(
        "RMSE of hidden ratings", formats.fixed(average["rmse"], 3), f"{formats.count(average['num_ratings'])} ratings"
    )
    return Section(body, [number])


def describe(files: Mapping[str, Path]) -> str:
    """Return the error of the posterior average; empty if nothing was computed."""
    path = files["scores.csv"]
    return f"RMSE {formats.fixed(_average(_scores(path))['rmse'], 3)}" if path.exists() else ""


def _scores(path: Path) -> list[Row]:
    return _records(read_table(path, texts=("prediction",), numbers=_NUMBERS))


def _records(table: pd.DataFrame) -> list[Row]:
    return list(table.to_dict("records"))


def _average(scores: Sequence[Row]) -> Row:
    return next(row for row in scores if row["prediction"] == AVERAGE)


def compare_errors(scores: Sequence[Row]) -> str:
    """Return sentences on the error of the posterior average beside every other prediction, by intervals."""
    average = _average(scores)
    groups: dict[str, list[str]] = {"better than": [], "worse than": [], "not clearly better or worse than": []}
    for row in scores:
        if row["prediction"] != AVERAGE:
            low, high = row["rmse_less_average_low"], row["rmse_less_average_high"]
            words = list(groups)[0 if low > 0 else 1 if high < 0 else 2]
            limits = f"{formats.fixed(low, 3)} to {formats.fixed(high, 3)}"
            groups[words].append(f"{NAMES.get(row['prediction'], row['prediction'])} ({limits})")
    said = "; ".join(f"{words} {_listed(names)}" for words, names in groups.items() if names)
    interval = f"{formats.fixed(average['rmse_low'], 3)} to {formats.fixed(average['rmse_high'], 3)}"
    return (
        f"The posterior average predicts {formats.count(average['num_ratings'])} hidden ratings of {formats.count(average['num_users'])} users with a "
        f"root mean square error of {formats.fixed(average['rmse'], 3)} ({interval}): {said}. In brackets: 95% intervals, over users, of their "
        "error minus that of the average."
    )


def describe_new_users(average: Row) -> list[str]:
    """Return a sentence where the chains have not seen the users."""
    if not average["num_given"]:
        return []
    return [
        f"The chains have not seen these {formats.count(average['num_users'])} users. Each is folded in: given some of the user's ratings "
        f"({formats.count(average['num_given'])} in all) and a draw of the items, the user's latents are drawn and the other ratings predicted."
    ]


def describe_coverage(coverage: Sequence[Row]) -> list[str]:
    """Return a sentence on the widest intervals."""
    if not coverage:
        return []
    row = coverage[-1]
    wanted, low, high = row["probability"], row["covered_low"], row["covered_high"]
    words = "too many" if low > wanted else "too few" if high < wanted else "not clearly too many or too few"
    return [
        f"The {formats.share(wanted, 0)} intervals contain {formats.share(row['covered'])} of the hidden ratings "
        f"({formats.share(low)} to {formats.share(high)}): {words}."
    ]


def _score_table(scores: Sequence[Row]) -> pd.DataFrame:
    return pd.DataFrame([
        {
            "prediction": NAMES.get(row["prediction"], row["prediction"]),
            **{f"{score.upper()}": _with_interval(row, score, 4) for score in ("rmse", "mae")},
            "RMSE less that of the average": "" if row["prediction"] == AVERAGE else _with_interval(row, "rmse_less_average", 4),
        }
        for row in scores
    ])  # fmt: skip


def _with_interval(row: Row, name: str, decimals: int) -> str:
    value, low, high = (formats.fixed(row[f"{name}{end}"], decimals) for end in ("", "_low", "_high"))
    return f"{value} ({low} to {high})"


def _coverage_table(coverage: Sequence[Row]) -> pd.DataFrame:
    return pd.DataFrame([
        {
            "interval": formats.share(row["probability"], 0),
            "hidden ratings inside": f"{formats.share(row['covered'])} ({formats.share(row['covered_low'])} to {formats.share(row['covered_high'])})",
        }
        for row in coverage
    ])  # fmt: skip


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
