"""sensitivity: how much the posterior changes if the prior or the likelihood is given slightly more or less weight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import SensitivityOptions as Options


class Sensitivity(Analysis):
    """Power scaling of prior and likelihood."""

    pretty_name = "Sensitivity"
    outputs = ("sensitivity.csv",)
    message = "Scale prior and likelihood of {experiment} by powers"
    options: Options

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Recompute log prior and log likelihood of draws, weight them, and compare; return the counts as text."""
        from bayesmesh.analyses.sensitivity.power_scaling import scale_powers

        del others
        return scale_powers(subject.bound, subject.posterior, self.options, files["sensitivity.csv"])

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the quantities that depend most on the prior, and what that means."""
        from bayesmesh.analyses.sensitivity.section import build_section

        return build_section(files["sensitivity.csv"])

    def cell(self, files: Mapping[str, Path]) -> str:
        """Say whether prior and data are in conflict."""
        from bayesmesh.analyses.sensitivity.section import describe

        return describe(files["sensitivity.csv"])
