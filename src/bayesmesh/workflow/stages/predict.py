"""predict: predict the outcome of the rows of a new table, from the stored posterior of an experiment."""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import logging
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bayesmesh.analyses._outcome import Outcome, class_names, find_outcome
from bayesmesh.config.user_code import explaining
from bayesmesh.data.shards import Shards
from bayesmesh.data.tables.new_rows import NewRows
from bayesmesh.data.views import PreparedShards
from bayesmesh.errors import ConfigError, DataError
from bayesmesh.files import atomic_path
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.indices import BEYOND
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.sampling.program.predictions import BLOCK_CELLS, SEEDED_ROWS, Predictions, Summary
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.posterior.axes import is_free
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from bayesmesh.store.predictions import DrawsWriter, PredictedDraws, check_draws_path, draws_writer
from bayesmesh.store.records.checked import read_checked
from bayesmesh.store.records.jobs import check_output
from bayesmesh.workflow.arguments import refuse_overwriting
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, component_sources
from bayesmesh.workflow.posterior import find_spec, refuse_overwriting_data, warn_of_failure
from bayesmesh.workflow.stages.inputs import bind

_log = logging.getLogger("bayesmesh")


def run(arguments: argparse.Namespace) -> int:
    """Write the predictions, and return the exit code.

    Raises:
        ConfigError: the experiment was not fitted to a table, or its model does not predict rows.
        DataError: the new table does not fit; the message names file and row.
        StoreError: the posterior is missing or damaged.
    """
    if not 0 < arguments.interval < 1:
        raise ConfigError(f"--interval {arguments.interval}: not between 0 and 1", "for example --interval 0.9")
    table = Path(arguments.table)
    if not table.exists():
        raise DataError(f"{table}: no such file", "name one table: CSV, TSV, Parquet, Feather or lines of JSON")
    layout = ExperimentLayout(arguments.results, arguments.experiment)
    job = find_job(layout, arguments.verb)
    output = arguments.output or table.with_name(f"{table.stem}-predicted.csv")
    written = [output]
    if arguments.draws is not None:
        check_draws_path(arguments.draws)
        if arguments.draws.resolve() == output.resolve():
            raise ConfigError(f"--draws {arguments.draws}: this is also the file of --output", "name another file")
        written.append(arguments.draws)
    for path, key in zip(written, ("--output", "--draws"), strict=False):
        refuse_overwriting(table, path, key)
        refuse_overwriting_data(job, path, key)
    warn_of_failure(layout, "these predictions may be wrong")
    with explaining(component_sources(job)):
        num_rows = predict_table(
            job, table, output, arguments.interval, takes_new_levels=arguments.new_levels, draws=arguments.draws
        )
    _log.info("%s: predictions for %d rows", output, num_rows)
    return 0


def find_job(layout: ExperimentLayout, verb: str) -> Job:
    """Return the settings of the posterior of one table.

    Raises:
        ConfigError: the experiment has no posterior, was not fitted to a table, or to many datasets.
        StoreError: the posterior is damaged.
    """
    job = find_spec(layout)
    if job.data.source != "table":
        problem = f"experiment '{job.experiment}': its source is '{job.data.source}'"
        raise ConfigError(problem, f"{verb} needs a model of a table")
    if job.data.replicates is not None:
        raise ConfigError(
            f"experiment '{job.experiment}': key 'data.replicates': its posterior is that of many datasets",
            f"use {verb} with an experiment of one dataset, such as `rows: site == 'Bonn'` instead of `replicates: site`",
        )
    return job


def predict_table(
    job: Job,
    table: Path,
    output: Path,
    probability: float,
    *,
    takes_new_levels: bool = False,
    draws: Path | None = None,
) -> int:
    """Write predictions for the rows of a table and return their number; see `run` for the errors.

    Args:
        spec: with which the posterior was assembled.
        table: a file with the columns of the experiment's table; that of the outcome may be absent, or empty in any rows.
        output: a CSV file, replaced when it is complete.
        probability: of the intervals.
        takes_new_levels: whether groups may have levels that the experiment's table did not have.
        draws: a Zarr store or a Parquet file for the draws of the predictions, replaced when it is complete; None for none.
    """
    configure_jax(job.compute)
    jax.config.update("jax_enable_x64", True)
    check_output(job.layout.results, job.layout.posterior)
    model, _, shards = bind(job, component_of(job, "model"))
    if model.takes_all_rows:
        raise ConfigError(f"model {type(model).__name__} takes all rows as one", "predict needs a model of single rows")
    about = read_checked(job.data_layout.records / "table.json", "run the fetch stage again")
    _, options = component_of(job, "source")
    posterior = open_posterior(job.layout.posterior)
    groups = model.grouping_columns()
    with tempfile.TemporaryDirectory() as folder:
        outcome = find_outcome(model, shards)
        new_levels, own = groups if takes_new_levels else (), columns_of(about, outcome.name)
        new = NewRows(table, about, options, Path(folder), new_levels, groups, own)
        added = {column: len(levels) for column, levels in new.added.items()}
        for column, number in added.items():
            _log.info("%s: effects of %d new levels of '%s' are drawn from their population", table, number, column)
        predictions = Predictions(
            model, job.compute.dtype, posterior, probability, added,
            simulates_classes=draws is not None, block_cells=BLOCK_CELLS,
        )  # fmt: skip
        rows = RowMaker(new, shards, table, model.may_be_infinite)
        rows.check_absent(model, outcome.name, lambda: predictions.fields_used(*rows.make(0, 1, 1)))
        size = min(-(-new.num_rows // SEEDED_ROWS) * SEEDED_ROWS, predictions.block_rows(*rows.make(0, 1, 1)))
        with contextlib.ExitStack() as stack:
            drawn: DrawsWriter | None = None
            if draws is not None:
                constants = functools.partial(_constants, new, about, shards, outcome.name)
                kind = drawn_of(predictions, outcome, posterior, new.num_rows, size, constants)
                drawn = stack.enter_context(draws_writer(draws, kind))
            partial = stack.enter_context(atomic_path(output))
            file = stack.enter_context(partial.open("w", encoding="utf-8", newline=""))
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header(outcome, predictions.num_classes))
            for start in range(0, new.num_rows, size):
                stop = min(start + size, new.num_rows)
                made = rows.make(start, stop, size)
                if (row := predictions.row_beyond(*made)) is not None:
                    raise DataError(
                        f"{table}, row {start + row + 1}: {BEYOND}",
                        "correct the row: the model has no latent for its group or number",
                    )
                centres, simulated = predictions.draws_of(*made, start, stop - start)
                if drawn is not None:
                    drawn.write(start, *in_unit(centres, simulated, outcome, predictions.num_classes))
                found = predictions.summarise(centres, simulated)
                _check_finite(found, table, start)
                writer.writerows(lines(found, outcome, start, predictions.num_classes))
    return new.num_rows


def drawn_of(
    predictions: Predictions, outcome: Outcome, posterior: Posterior, num_rows: int, block_rows: int,
    constants: Callable[[slice], dict[str, np.ndarray]],
) -> PredictedDraws:  # fmt: skip
    """Return what the draws of predictions are."""
    number = predictions.num_classes
    levels = class_names(outcome, max(2, number)) if number else ()
    classes = class_names(outcome, number) if number else ()
    return PredictedDraws(
        outcome.name, levels, classes, predictions.has_mean, posterior.num_chains, posterior.num_draws, num_rows,
        block_rows, constants, posterior.created_at,
    )  # fmt: skip


def _constants(
    new: NewRows, about: Mapping[str, Any], shards: Shards, outcome: str, rows: slice
) -> dict[str, np.ndarray]:
    """Return the predictors of some rows as they are stored for the model, and names of levels instead of codes."""
    found = {name: np.asarray(field[rows]) for name, field in new.fields.items() if name != outcome and is_free(name)}
    for name in found.keys() & shards.variables.keys():
        if levels := shards.variables[name].levels:
            added = [level for column in columns_of(about, name) for level in new.added.get(column, ())]
            found[name] = np.array([*levels, *added], np.dtypes.StringDType())[found[name]]
    return found


def in_unit(
    centres: np.ndarray, simulated: np.ndarray, outcome: Outcome, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted numbers in the unit of the table, and classes as they are."""
    if num_classes:
        return centres, simulated
    return centres * outcome.scale + outcome.mean, simulated * outcome.scale + outcome.mean


def _check_finite(found: Summary, table: Path, start: int) -> None:
    """Refuse predictions that are not numbers, such as those that overflow.

    Raises:
        DataError: names the file and the row.
    """
    kinds = (found.mean, found.low, found.high, found.outcome_low, found.outcome_high)
    columns = [values.reshape(len(found.mean), -1) for values in kinds if values is not None]
    is_finite = np.isfinite(np.concatenate(columns, axis=1)).all(axis=1)
    if not is_finite.all():
        row = start + int(np.argmin(is_finite)) + 1
        problem = f"{table}, row {row}: the prediction is infinite or not a number, at some draws at least"
        raise DataError(problem, "check the row: its numbers may lie far outside of those of the experiment's table")


class RowMaker:
    """Makes the fields that a model reads from the rows of a new table; those of `may_be_infinite` need not be finite."""

    def __init__(self, new: NewRows, shards: Shards, path: Path, may_be_infinite: Collection[str]) -> None:
        self._new, self._shards, self._path, self._may_be_infinite = new, shards, path, may_be_infinite
        # Fields that the table lacks, and that do not matter, have the values of a training row.
        self._absent = {k: v[0] for k, v in Shards(shards.path).read_rows(0, 1).items() if k not in new.fields}

    @property
    def num_rows(self) -> int:
        """Number of rows of the new table."""
        return self._new.num_rows

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return rows as the source has them."""
        rows = {name: np.asarray(values[start:stop]) for name, values in self._new.fields.items()}
        return rows | {name: np.repeat(value[None], stop - start, axis=0) for name, value in self._absent.items()}

    def make(self, start: int, stop: int, size: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Return fields and entries of rows, padded to a number of rows by repeating the last one.

        Raises:
            DataError: a field of a row is infinite or not a number, such as the logarithm of an exposure of 0.
        """
        chosen, group = np.minimum(np.arange(size), stop - start - 1), self._shards.group_field
        raw = {name: values[chosen] for name, values in self.read(start, stop).items()}
        entries = np.asarray(raw[group]) if group is not None else np.zeros(size, np.int64)
        # The check below names the row.
        with np.errstate(all="ignore"):
            made = self._shards.prepare(raw)
        for name, values in made.items():
            cells = np.asarray(values)
            if name not in self._may_be_infinite and cells.dtype.kind == "f" and not np.isfinite(cells).all():
                row = start + int(np.argwhere(~np.isfinite(cells))[0, 0]) + 1
                problem = f"{self._path}, row {row}: '{name}', which the model makes of the columns, is infinite or not a number"
                raise DataError(problem, "correct the row: logarithms, and exposures, need numbers greater than 0")
        return made, entries

    def check_absent(self, model: Model, outcome: str, used: Callable[[], Collection[str]]) -> None:
        """Refuse a table without a column on which predictions depend.

        Args:
            model: the model.
            outcome: field of the outcome.
            used: returns the fields on which predictions depend, for a model that neither names them nor prepares fields.

        Raises:
            DataError: names the file and the column.
        """
        needed = model.prediction_fields()
        if needed is None:
            needed = self._absent.keys() - {outcome} if isinstance(self._shards, PreparedShards) else used()
        for field in self._absent:
            if field in needed or field == self._shards.group_field:
                raise self._error(self._new.absent.get(field, [field]))

    def _error(self, columns: Sequence[str]) -> DataError:
        """Return the error of columns that are not there, or of the first that holds no value."""
        remedy = "add it to the table, with the values for which to predict"
        for name in columns:
            if row := self._new.set_aside.get(name):
                problem = f"{self._path}, row {row}: '{name}' holds no value, and predictions depend on it"
                return DataError(problem, remedy.replace("add it to", "write it into"))
        listed = ", ".join(f"'{name}'" for name in columns)
        return DataError(f"{self._path}: no column {listed}, on which predictions depend", remedy)


def columns_of(about: Mapping[str, Any], field: str) -> Sequence[str]:
    """Return the columns of a field, as the description of a table has them; none for a field that it does not have."""
    named = about["fields"].get(field, ())
    return (named,) if isinstance(named, str) else tuple(named)


def header(outcome: Outcome, num_classes: int) -> list[str]:
    """Return the columns: the number of the row, counted from 1 below any header, and what is predicted."""
    if not num_classes:
        return ["row", f"{outcome.name}_mean", "mean_low", "mean_high", f"{outcome.name}_low", f"{outcome.name}_high"]
    names = class_names(outcome, num_classes)
    of_classes = [f"{what}[{name}]" for name in names for what in ("probability", "low", "high")]
    return ["row", outcome.name, *of_classes]


def lines(found: Summary, outcome: Outcome, start: int, num_classes: int) -> Iterator[list[Any]]:
    """Yield the lines of the rows of a block."""
    if not num_classes:
        columns = (found.mean, found.low, found.high, found.outcome_low, found.outcome_high)
        numbers = [None if each is None else each.reshape(-1) * outcome.scale + outcome.mean for each in columns]
        for i in range(len(found.mean)):
            yield [start + i + 1, *("" if each is None else float(each[i]) for each in numbers)]
        return
    assert found.low is not None
    assert found.high is not None
    names = class_names(outcome, num_classes)
    first = outcome.levels[0] if len(outcome.levels) == 2 else "0"
    for i in range(len(found.mean)):
        best = (
            (names[0] if found.mean[i, 0] >= 0.5 else first) if num_classes == 1 else names[int(found.mean[i].argmax())]
        )
        triples = zip(found.mean[i], found.low[i], found.high[i], strict=True)
        yield [start + i + 1, best, *(float(value) for triple in triples for value in triple)]
