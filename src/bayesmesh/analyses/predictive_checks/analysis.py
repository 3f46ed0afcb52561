"""predictive_checks: compare simulated outcomes with the observed ones, by test quantities suited to the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject, unsuitable
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import PredictiveChecksOptions as Options
from bayesmesh.errors import ConfigError


class PredictiveChecks(Analysis):
    """Posterior predictive checks."""

    pretty_name = "Predictive checks"
    outputs = ("checks.csv", "bins.csv", "prior.csv", "quantities.zarr")
    message = "Compare outcomes simulated from {experiment} with the observed ones"
    checks_model = True
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require a model that predicts."""
        from bayesmesh.analyses._draw_blocks import check_predictions
        from bayesmesh.analyses.predictive_checks.outcomes import simulate_once

        if not bound.model.has_predictions:
            problem = f": {bound.model.row_problem}" if bound.model.row_problem else " does not predict its outcome"
            raise unsuitable("predictive_checks", f"model {type(bound.model).__name__}{problem}")
        if self.options.prior and not bound.model.has_proper_prior:
            name = type(bound.model).__name__
            raise ConfigError(
                f"key 'predictive_checks.prior': no draws follow the prior of model {name}, which is flat, or has a potential or a test point",
                "remove the key, or give the model a prior that can be drawn from",
            )
        check_predictions("predictive_checks", bound, latents, simulate_once)

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Simulate outcomes of all rows from draws, in blocks, and compare; return what differs as text."""
        from bayesmesh.analyses.predictive_checks.outcomes import check_outcomes, check_prior

        del others
        found = check_outcomes(subject.bound, subject.posterior, self.options.draws, files)
        return found + check_prior(subject.bound, self.options.draws if self.options.prior else 0, files["prior.csv"])

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Show each quantity of the simulated outcomes beside the observed one."""
        from bayesmesh.analyses.predictive_checks.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Name the quantities that differ."""
        from bayesmesh.analyses.predictive_checks.section import describe

        return describe(files)
