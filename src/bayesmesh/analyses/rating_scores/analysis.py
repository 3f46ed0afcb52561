"""rating_scores: errors of predictions of hidden ratings, and the coverage of their intervals."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.sections import KeyNumber, Section, html_table, render
from bayesmesh.analyses.options import RatingScoresOptions as Options


class RatingScores(Analysis):
    """Errors on hidden ratings of the posterior average, of single draws and of simple rules."""

    pretty_name = "Hidden ratings"
    outputs = ("scores.csv", "coverage.csv")
    message = "Score the ratings that {experiment} predicts"
    needs_of_source = ("rating_scores",)
    needs_of_model = ("rating_scores",)
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require users as groups of rows, a code for each film, and a predicted number."""
        from bayesmesh.analyses.rating_scores.predictions import check_ratings

        check_ratings(bound, latents)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Predict hidden ratings with all draws, score them, and return the errors as text."""
        from bayesmesh.analyses.rating_scores.scores import score_ratings

        del others
        return score_ratings(subject.bound, subject.posterior, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the errors with their intervals, and the coverage."""
        scores = _scores(files["scores.csv"])
        numbers = ("probability", "covered", "covered_low", "covered_high")
        coverage = read_table(files["coverage.csv"], numbers=numbers).to_dict("records")
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
            "RMSE of hidden ratings",
            formats.fixed(average["rmse"], 3),
            f"{formats.count(average['num_ratings'])} ratings",
        )
        return Section(body, [number])

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the error of the posterior average."""
        return f"RMSE {formats.fixed(_average(_scores(files['scores.csv']))['rmse'], 3)}"


NAMES: dict[str, str] = {
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


def _scores(path: Path) -> list[Row]:
    return list(read_table(path, texts=("prediction",), numbers=_NUMBERS).to_dict("records"))


def _average(scores: Sequence[Row]) -> Row:
    return next(row for row in scores if row["prediction"] == AVERAGE)


def compare_errors(scores: Sequence[Row]) -> str:
    """Return sentences on the error of the posterior average beside every other prediction, by intervals."""
    average = _average(scores)
    ranked = formats.ranked_by_interval(
        (NAMES[row["prediction"]], row["rmse_less_average_low"], row["rmse_less_average_high"])
        for row in scores
        if row["prediction"] != AVERAGE
    )
    interval = f"{formats.fixed(average['rmse_low'], 3)} to {formats.fixed(average['rmse_high'], 3)}"
    return (
        f"The posterior average predicts {formats.count(average['num_ratings'])} hidden ratings of {formats.count(average['num_users'])} users with a "
        f"root mean square error of {formats.fixed(average['rmse'], 3)} ({interval}): {ranked}. In brackets: 95% intervals, over users, of their "
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


def _score_table(scores: Sequence[Row]) -> list[dict[str, str]]:
    return [
        {
            "prediction": NAMES[row["prediction"]],
            **{f"{score.upper()}": _with_interval(row, score, 4) for score in ("rmse", "mae")},
            "RMSE less that of the average": "" if row["prediction"] == AVERAGE else _with_interval(row, "rmse_less_average", 4),
        }
        for row in scores
    ]  # fmt: skip


def _with_interval(row: Row, name: str, decimals: int) -> str:
    value, low, high = (formats.fixed(row[f"{name}{end}"], decimals) for end in ("", "_low", "_high"))
    return f"{value} ({low} to {high})"


def _coverage_table(coverage: Sequence[Row]) -> list[dict[str, str]]:
    return [
        {
            "interval": formats.share(row["probability"], 0),
            "hidden ratings inside": f"{formats.share(row['covered'])} ({formats.share(row['covered_low'])} to {formats.share(row['covered_high'])})",
        }
        for row in coverage
    ]
