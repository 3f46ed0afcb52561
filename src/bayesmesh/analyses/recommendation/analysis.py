"""recommend: rank unwatched films with their uncertainty, and score the rankings on held-out films."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject, check_chosen
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import RecommendationOptions as Options


class Recommendation(Analysis):
    """Films for a few users, with uncertainty, and held-out scores for all users."""

    pretty_name = "Recommendation"
    outputs = (
        "top.csv", "genres.csv", "users.csv", "scores.csv", "differences.csv", "activity.csv", "calibration.csv",
        "new_users.csv",
    )  # fmt: skip
    verb = "recommend"
    folder = "recommendations"
    message = "Recommend films in {experiment}"
    needs_of_source = ("recommendation",)
    needs_of_model = ("recommendation",)
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a watch matrix, latents per user, one Bernoulli per film, and that the chosen users exist."""
        from bayesmesh.analyses.recommendation.ranking import KEY, check_recommendation

        check_recommendation(bound.model, latents, bound.shards)
        check_chosen(f"{KEY}.users", "user", self.options.users, bound.shards.num_rows)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Rank and score; return the number of draws as text."""
        from bayesmesh.analyses.recommendation.evaluation import recommend

        del others
        return f"{recommend(subject.bound, subject.posterior, self.options, files)} draws"

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the lists of the most and the least active user, and all held-out scores."""
        from bayesmesh.analyses.recommendation.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the NDCG of the best ranking relative to popularity."""
        from bayesmesh.analyses.recommendation.section import describe

        return describe(files)
