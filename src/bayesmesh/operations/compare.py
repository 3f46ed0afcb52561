"""compare: compare experiments, or the members of sweeps, by their stored scores of single rows."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from bayesmesh.config.declarations import list_analyses
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.planning.plan import Plan
from bayesmesh.report.comparison_page import write_comparison
from bayesmesh.report.model_comparison import ModelComparison, compare_models, sentences
from bayesmesh.store.layout import ComparisonLayout, ExperimentLayout
from bayesmesh.store.pointwise import POINTWISE, RowScores, read_pointwise
from bayesmesh.store.seals import check_output, seal_other

_log = logging.getLogger("bayesmesh")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and the table of a comparison, log what it says, and return the exit code.

    Raises:
        ConfigError: an experiment has no scores by row, or they are of other rows than those of another.
    """
    if arguments.name and not re.fullmatch(NAME_PATTERN, arguments.name):
        raise ConfigError(f"--name: '{arguments.name}' is not a valid name", f"names match {NAME_PATTERN}")
    plan = Plan(is_partial=True)
    results = Path(plan.results)
    names, missing = expand(plan, arguments.names)
    for name in missing:
        _log.warning("%s has no scores by row yet and is left out", name)
    layouts = [ExperimentLayout(results, name) for name in names]
    found = compare(layouts)
    layout = ComparisonLayout(results, arguments.name or title_of(arguments.names))
    write_comparison(layout, f"Comparison of {', '.join(arguments.names)}", found)
    inputs = {path.relative_to(results).as_posix(): check_output(results, path) for path in map(pointwise_of, layouts)}
    seal_other(results, layout.folder.name, layout.name, [layout.table, layout.page], inputs=inputs)
    for sentence in sentences(found):
        _log.info("%s", sentence)
    _log.info("%s", layout.page)
    return 0


def expand(plan: Plan, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return experiments, with the members of sweeps in their place, and members of sweeps that have no scores yet.

    Raises:
        ConfigError: a name is neither an experiment of the configuration nor a sweep nor a folder of results.
    """
    found: list[str] = []
    missing: list[str] = []
    for name in names:
        if name in plan.sweeps:
            for member in plan.sweeps[name].members:
                (found if find_pointwise(ExperimentLayout(Path(plan.results), member)) else missing).append(member)
        elif name in plan.experiments or (Path(plan.results) / name).is_dir():
            found.append(name)
        else:
            raise plan.broken.get(name) or ConfigError(
                f"no experiment or sweep '{name}'", suggest(name, [*plan.experiments, *plan.sweeps])
            )
    return list(dict.fromkeys(found)), missing


def compare(layouts: Iterable[ExperimentLayout]) -> ModelComparison:
    """Compare experiments by their stored scores, after comparing these with the records of the jobs that wrote them.

    Raises:
        ConfigError: an experiment has no scores by row, or they are of other rows than those of another.
        StoreError: scores are damaged or altered.
    """
    return compare_models({layout.experiment: read_scores(layout) for layout in layouts})


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


def title_of(names: Sequence[str]) -> str:
    """Return a name for the files of a comparison.

    >>> title_of(["a", "b"]), title_of(["a", "b", "c", "d"])
    ('a-b', 'a-and-3-others')
    """
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-others"
