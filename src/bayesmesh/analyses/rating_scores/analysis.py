"""rating_scores: errors of predictions of hidden ratings, and the coverage of their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures.sections import Section
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
        from bayesmesh.analyses.rating_scores.hidden_ratings import check_ratings

        check_ratings(bound, latents)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Predict hidden ratings with all draws, score them, and return the errors as text."""
        from bayesmesh.analyses.rating_scores.scores import score_ratings

        del others
        return score_ratings(subject.bound, subject.posterior, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the errors with their intervals, and the coverage."""
        from bayesmesh.analyses.rating_scores.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the error of the posterior average."""
        from bayesmesh.analyses.rating_scores.section import describe

        return describe(files)
