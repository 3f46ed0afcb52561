"""k_fold: score rows under posteriors that have not seen them, each sampled in a separate job."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import KFoldOptions as Options


class KFold(Analysis):
    """Cross-validation by folds of rows, by groups of rows, or by predicting the future from the past."""

    pretty_name = "Cross-validation"
    outputs = ("k_fold.csv", "folds.csv", "pointwise.zarr")
    message = "Score the folds of {experiment}"
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require rows without latents of their own, or, if the model takes all rows as one, a likelihood of fewer."""
        from bayesmesh.analyses._draw_blocks import check_predictions, log_density_of
        from bayesmesh.analyses._likelihood import check_rows
        from bayesmesh.analyses.k_fold.joint_models import KEY, check_whole

        if bound.model.reads_whole(bound.model.options):
            check_whole(bound, self.options)
            return
        check_rows(KEY, bound.model, bound.data_spec)
        check_predictions(KEY, bound, latents, log_density_of)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Score the rows of each fold under the draws without them, join the scores, and return their sum as text."""
        from bayesmesh.analyses.k_fold.scores import score_folds

        return score_folds(subject, others, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the sum, the folds, and, if it has run, Pareto-smoothed importance sampling on the same rows."""
        from bayesmesh.analyses.k_fold.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the sum of log scores."""
        from bayesmesh.analyses.k_fold.section import describe

        return describe(files)
