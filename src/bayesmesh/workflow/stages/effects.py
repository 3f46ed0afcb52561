"""effects: compute effects of predictors from the stored posterior of an experiment, and print or write their table."""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesmesh.analyses._outcome import find_outcome
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.effects.table import Cells, write_effects
from bayesmesh.analyses.options import EffectsOptions
from bayesmesh.config.errors import validate
from bayesmesh.config.user_code import explaining
from bayesmesh.config.yaml_reader import read_yaml
from bayesmesh.data.tables.new_rows import NewRows
from bayesmesh.errors import DataError, suggest
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.reader import open_posterior
from bayesmesh.store.records.checked import read_checked
from bayesmesh.store.records.jobs import check_output
from bayesmesh.workflow.arguments import refuse_overwriting
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, component_sources
from bayesmesh.workflow.posterior import refuse_overwriting_data, warn_of_failure
from bayesmesh.workflow.stages.command import run as run_job
from bayesmesh.workflow.stages.inputs import bind
from bayesmesh.workflow.stages.predict import RowMaker, columns_of, find_job

_log = logging.getLogger("bayesmesh")

_GIVEN = ("predictions", "slopes", "rows", "by", "measure", "scale", "group_effects", "interval", "draws")
"""Options whose words are the values of the keys of the analysis."""


def run(arguments: argparse.Namespace) -> int:
    """Compute the effects, and return the exit code; with ``--spec`` or ``--experiment``, run the job of the analysis.

    Raises:
        ConfigError: an option does not fit the data or the model, or the experiment has no posterior from a table.
        DataError: the cells do not fit.
        StoreError: a result is damaged.
    """
    if arguments.name is None:
        return run_job(arguments)
    given = {} if arguments.settings is None else read_yaml(arguments.settings)
    options = validate(Path("bayesmesh effects"), EffectsOptions, given | _settings(arguments), under="effects")
    layout = ExperimentLayout(arguments.results, arguments.name)
    job = find_job(layout, "effects")
    if arguments.output is not None:
        refuse_overwriting_data(job, arguments.output)
        if arguments.cells is not None:
            refuse_overwriting(arguments.cells, arguments.output)
    warn_of_failure(layout, "these effects may be wrong")
    configure_jax(job.compute)
    check_output(layout.results, layout.posterior)
    with explaining(component_sources(job)), tempfile.TemporaryDirectory() as folder:
        bound = bind(job, component_of(job, "model"))
        with _cells(job, bound, arguments.cells, arguments.weight, options.by) as cells:
            output = arguments.output or Path(folder, "effects.csv")
            num_lines = write_effects(bound, open_posterior(layout.posterior), options, output, cells)
        if arguments.output is None:
            print(pd.read_csv(output, keep_default_na=False).replace("", "·").to_string(index=False))
        else:
            _log.info("%s: %d lines", output, num_lines)
    return 0


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keys of the analysis that the command line gives."""
    found = {name: value for name in _GIVEN if (value := getattr(arguments, name)) not in (None, False)}
    found |= {"average": False} if arguments.each_row else {}
    steps = {
        name: (words[0] if len(words) == 1 else words) if words else 1 for name, words in _pairs(arguments.comparisons)
    }
    values = dict(_pairs(arguments.at))
    return found | ({"comparisons": steps} if steps else {}) | ({"at": values} if values else {})


def _pairs(words: Sequence[str] | None) -> Iterator[tuple[str, list[float | str]]]:
    """Yield column and values of words such as ``age=20,40``."""
    for word in words or ():
        name, _, values = word.partition("=")
        yield name, [_number(each) for each in values.split(",") if each]


def _number(text: str) -> float | str:
    with contextlib.suppress(ValueError):
        return float(text)
    return text


@contextlib.contextmanager
def _cells(
    job: Job, bound: BoundModel, path: Path | None, weight: str | None, by: Sequence[str]
) -> Iterator[Cells | None]:
    """Open a table of cells.

    Raises:
        DataError: it lacks a column, or a weight is negative or not a number.
    """
    if path is None:
        yield None
        return
    about = read_checked(job.data_layout.records / "table.json", "run the fetch stage again")
    outcome = find_outcome(bound.model, bound.shards)
    with tempfile.TemporaryDirectory() as folder:
        new = NewRows(
            path, about, component_of(job, "source")[1], Path(folder), outcome=columns_of(about, outcome.name)
        )
        rows = RowMaker(new, bound.shards, path, bound.model.may_be_infinite)
        rows.check_absent(bound.model, outcome.name, lambda: bound.shards.fields.keys() - {outcome.name})
        texts = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str)
        for name in (*by, *([weight] if weight else [])):
            if name not in texts:
                raise DataError(f"{path}: no column '{name}'", suggest(name, list(texts.columns)))
        weights = pd.to_numeric(texts[weight], errors="coerce").to_numpy(float) if weight else np.ones(len(texts))
        if not (weights >= 0).all():
            row = int(np.argmin(weights >= 0)) + 1
            raise DataError(f"{path}, row {row}: '{weight}' is not a number from 0", "correct the weight of the cell")
        if not weights.any():
            raise DataError(f"{path}: all weights are 0", "give the size of each cell")
        yield Cells(rows, weights, {name: texts[name].astype(str).to_numpy() for name in by})
