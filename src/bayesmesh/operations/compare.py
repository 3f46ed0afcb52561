"""compare: compare experiments, or the members of sweeps, by their stored scores of single rows."""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bayesmesh.analyses.evidence.table import EVIDENCE
from bayesmesh.config.settings import NAME_PATTERN
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.report.comparison.models import Feature
from bayesmesh.report.comparison.page import write_comparison
from bayesmesh.report.comparison.scores import (
    choose_scores,
    compare_experiments,
    find_output,
)
from bayesmesh.report.comparison.text import sentences
from bayesmesh.store.layout import ComparisonLayout, ExperimentLayout
from bayesmesh.store.records.jobs import check_output, record_outputs
from bayesmesh.store.scores import POINTWISE
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import condition_of

_log = logging.getLogger("bayesmesh")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and the table of a comparison, log what it says, and return the exit code.

    Raises:
        ConfigError: an experiment has no scores by row, or its rows differ from those of another.
    """
    if arguments.name and not re.fullmatch(NAME_PATTERN, arguments.name):
        raise ConfigError(f"--name: '{arguments.name}' is not a valid name", f"names match {NAME_PATTERN}")
    plan = Plan(
        asked=[name for name in arguments.names if not _is_stored(ExperimentLayout(Path("results"), name))],
    )
    results = Path(plan.results)
    names, missing = expand(plan, arguments.names)
    for name in missing:
        _log.warning("%s has no scores by row yet and is left out", name)
    layouts = [ExperimentLayout(results, name) for name in names]
    feature = None if arguments.by is None else read_feature(plan, names[0], arguments.by)
    found = compare_experiments(layouts, feature)
    found = found._replace(outdated=tuple(dict.fromkeys([*found.outdated, *find_outdated(plan, names)])))
    layout = ComparisonLayout(results, arguments.name or title_of(arguments.names))
    write_comparison(layout, f"Comparison of {', '.join(arguments.names)}", found)
    evidence = [path for layout in layouts if (path := find_output(layout, EVIDENCE)) is not None]
    read = [*choose_scores(layouts).values(), *evidence]
    inputs = {path.relative_to(results).as_posix(): check_output(results, path) for path in read}
    record_outputs(results, layout.folder.name, layout.name, [layout.table, layout.page], inputs=inputs)
    for sentence in sentences(found):
        _log.info("%s", sentence)
    _log.info("%s", layout.page)
    return 0


def expand(plan: Plan, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return experiments, with each sweep replaced by its members, and the members of sweeps that have no scores yet.

    Raises:
        ConfigError: a name is neither an experiment of the configuration nor a sweep nor a folder of results.
    """
    found: list[str] = []
    missing: list[str] = []
    for name in names:
        if name in plan.sweeps:
            for member in plan.sweeps[name].members:
                (found if find_output(ExperimentLayout(Path(plan.results), member), POINTWISE) else missing).append(
                    member
                )
        elif name in plan.experiments or _is_stored(ExperimentLayout(Path(plan.results), name)):
            found.append(name)
        else:
            raise plan.broken.get(name) or ConfigError(
                f"no experiment or sweep '{name}'", suggest(name, [*plan.experiments, *plan.sweeps])
            )
    return list(dict.fromkeys(found)), missing


def _is_stored(layout: ExperimentLayout) -> bool:
    """Return whether results of an experiment are stored under a name, which need not be in the configuration."""
    is_name = re.fullmatch(NAME_PATTERN, layout.experiment) is not None
    return is_name and (layout.posterior.is_dir() or find_output(layout, POINTWISE) is not None)


def read_feature(plan: Plan, experiment: str, column: str) -> Feature:
    """Return a column of the training data of an experiment, in the order of the source.

    Raises:
        ConfigError: the experiment is not in the configuration, or has no such column.
        StoreError: its data are missing or damaged.
    """
    if experiment not in plan.experiments:
        raise ConfigError(f"--by: experiment '{experiment}' is not in the configuration", "name one that is first")
    shards = Shards(plan.data_layout(experiment).shards)
    if column not in shards.fields:
        problem = f"--by: the data of experiment '{experiment}' have no column '{column}'"
        raise ConfigError(problem, suggest(column, list(shards.fields)))
    values = np.concatenate([block[column] for block in shards.blocks()])
    about = shards.variables.get(column)
    return Feature(column, values, () if about is None else about.levels)


def find_outdated(plan: Plan, names: Sequence[str]) -> tuple[str, ...]:
    """Return the experiments whose results are older than the configuration, their code or their data, or damaged."""
    known = [(name, condition_of(plan.jobs_of(name))) for name in names if name in plan.experiments]
    return tuple(name for name, condition in known if condition.older or condition.damage)


def title_of(names: Sequence[str]) -> str:
    """Return a name for the files of a comparison.

    >>> title_of(["a", "b"]), title_of(["a", "b", "c", "d"])
    ('a-b', 'a-and-3-others')
    """
    return "-".join(names) if len(names) <= 3 else f"{names[0]}-and-{len(names) - 1}-others"
