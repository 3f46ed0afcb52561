"""loo: estimate how well the model predicts each row from all others, and say where the estimate is unreliable."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject, check_chosen
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import LooOptions as Options


class Loo(Analysis):
    """Leave-one-out cross-validation by Pareto-smoothed importance sampling."""

    pretty_name = "Leave-one-out"
    outputs = ("loo.csv", "pointwise.zarr")
    message = "Leave out each row of {experiment} in turn"
    checks_model = True
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a likelihood with one term per row, and rows without latents of their own."""
        from bayesmesh.analyses._draw_blocks import check_predictions, log_density_of
        from bayesmesh.analyses._likelihood import check_rows
        from bayesmesh.analyses.loo.leave_one_out import KEY

        check_rows(KEY, bound.model, bound.data_spec)
        check_chosen("loo.refit", "row", self.options.refit, bound.shards.num_observations)
        check_predictions(KEY, bound, latents, log_density_of)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Recompute the log likelihood in blocks of rows, smooth, and store scores by row; return the sum as text.

        Rows for which there are refits take the scores of the refits.
        """
        from bayesmesh.analyses.loo.leave_one_out import leave_out_rows

        options, refits = self.options, tuple(others.values())
        block_bytes = options.block_mebibytes * 2**20
        return leave_out_rows(
            subject.bound, subject.posterior, block_bytes, files, options.moment_matching_rows, refits
        )

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the sums, Pareto k of the rows, and the rows with the largest."""
        from bayesmesh.analyses.loo.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the expected log predictive density."""
        from bayesmesh.analyses.loo.section import describe

        return describe(files)
