"""average: average predictive probabilities on the test rows and score them against single draws."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bayesmesh.analyses.base import Analysis, BoundModel, Shapes, Subject
from bayesmesh.analyses.figures.sections import Section
from bayesmesh.analyses.options import AveragingOptions as Options


class Averaging(Analysis):
    """Scores of single draws and of the average of their predictive probabilities."""

    pretty_name = "Averaging"
    outputs = ("scores.csv", "predictions.zarr")
    verb = "average"
    message = "Average the predictions of {experiment} over its draws"
    needs_of_source = ("averaging",)
    needs_of_model = ("averaging",)
    options: Options

    def check(self, bound: BoundModel, latents: Shapes) -> None:
        """Require labelled test rows and one categorical prediction per row."""
        from bayesmesh.analyses.averaging.average import check_averaging

        check_averaging(bound.model, latents, bound.shards.test_rows())

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Average the probabilities and score them; return the accuracies as text."""
        from bayesmesh.analyses.averaging.average import average

        del others
        model, data_spec, shards = subject.bound
        last = average(
            model,
            data_spec,
            subject.posterior,
            shards.test_rows(),
            self.options,
            files,
            image_shape=subject.image_shape,
        )
        return (
            f"accuracy {last['single_accuracy']:.4f} of single draws, {last['average_accuracy']:.4f} of their average"
        )

    def section(self, files: Mapping[str, Path]) -> Section:
        """Show scores by number of draws, and the calibration of the average."""
        from bayesmesh.analyses.averaging.section import build_section

        return build_section(files)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Return the accuracy of the average of all draws."""
        from bayesmesh.analyses.averaging.section import describe

        return describe(files)
