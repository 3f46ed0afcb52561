"""evidence: estimate the marginal likelihood, from which posterior probabilities of models are computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import EvidenceOptions as Options


class Evidence(Analysis):
    """The evidence by bridge sampling, and by tempered chains where there are any."""

    pretty_name = "Evidence"
    outputs = ("evidence.csv",)
    message = "Estimate the evidence of {experiment}"
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a proper prior, and few enough coordinates for a normal with a full covariance matrix."""
        from bayesmesh.analyses.evidence.estimate import check_evidence

        del latents
        check_evidence(bound)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Evaluate the density at draws and at points of fitted normals, and write the estimates."""
        from bayesmesh.analyses.evidence.estimate import estimate_evidence

        del others
        return estimate_evidence(subject.bound, subject.posterior, self.options, files["evidence.csv"])

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show the estimates with their errors, and whether they agree."""
        from bayesmesh.analyses.evidence.section import build_section

        return build_section(files["evidence.csv"])

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the best estimate."""
        from bayesmesh.analyses.evidence.section import describe

        return describe(files["evidence.csv"])
