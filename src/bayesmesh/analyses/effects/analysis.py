"""effects: predictions, comparisons and slopes of predictors, at values or averaged over rows, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import EffectsOptions as Options


class Effects(Analysis):
    """Effects of predictors in plain numbers."""

    pretty_name = "Effects"
    outputs = ("effects.csv",)
    message = "Compute effects of predictors in {experiment}"
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Check that the data have the columns and levels that are named, and that measure and averages fit."""
        from bayesmesh.analyses.effects.table import check_effects

        check_effects(bound, self.options, latents)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Evaluate the effects at draws, and return the number of lines of the table as text."""
        from bayesmesh.analyses.effects.table import write_effects

        del others
        return f"{write_effects(subject.bound, subject.posterior, self.options, files['effects.csv'])} lines"

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show the first lines of the table, and a figure of those that can share an axis."""
        from bayesmesh.analyses.effects.section import build_section

        return build_section(files["effects.csv"], self.options)
