"""Find and read the scores by row of experiments, whichever analysis wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bayesmesh.config.declarations import list_analyses
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import ConfigError
from bayesmesh.report.model_comparison import ModelComparison, compare_models
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.pointwise import POINTWISE, RowScores, read_pointwise
from bayesmesh.store.seals import check_output


def compare_experiments(layouts: Iterable[ExperimentLayout]) -> ModelComparison:
    """Compare experiments by their stored scores, after comparing these with the records of the jobs that wrote them.

    Raises:
        ConfigError: an experiment has no scores by row, or they are of other rows than those of another.
        StoreError: scores are damaged or altered.
    """
    chosen = list(layouts)
    failed = [
        each.experiment for each in chosen if each.verdict.exists() and read_verdict(each.verdict).verdict == "fail"
    ]
    return compare_models({each.experiment: read_scores(each) for each in chosen}, failed)


def read_scores(layout: ExperimentLayout) -> dict[str, RowScores]:
    """Return the scores of an experiment.

    Raises:
        ConfigError: it has none; the remedy names the analyses that write them.
        StoreError: they are damaged or altered.
    """
    path = pointwise_of(layout)
    if (layout.results / "seals").is_dir():
        check_output(layout.results, path)
    return read_pointwise(path)


def find_pointwise(layout: ExperimentLayout) -> Path | None:
    """Return the scores by row of an experiment, whichever analysis wrote them; None without any."""
    folders = (each.folder for each in list_analyses() if POINTWISE in each.outputs)
    return next((path for folder in folders if (path := layout.folder / folder / POINTWISE).is_dir()), None)


def pointwise_of(layout: ExperimentLayout) -> Path:
    """Return the scores by row of an experiment.

    Raises:
        ConfigError: it has none.
    """
    path = find_pointwise(layout)
    if path is None:
        name, keys = layout.experiment, [each.name for each in list_analyses() if POINTWISE in each.outputs]
        added = f"add `{keys[0]}: {{}}` to the experiment and run it again: its draws stay"
        raise ConfigError(f"experiment '{name}' has no scores by row in {layout.folder}", added)
    return path
