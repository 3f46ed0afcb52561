"""Write the table of the effects that are asked for, one line for each average, row and level of the outcome."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses._outcome import class_names, find_outcome
from bayesmesh.analyses.base import BoundModel, Shapes
from bayesmesh.analyses.effects.columns import Columns, contrasts_of, slope_of
from bayesmesh.analyses.effects.evaluation import (
    MEASURES,
    Averages,
    Evaluator,
    FixedRows,
    RowSource,
    Statistics,
    change_of,
    predicts_classes,
)
from bayesmesh.analyses.options import EffectsOptions
from bayesmesh.config.data_spec import HostRows
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError
from bayesmesh.files import atomic_path
from bayesmesh.store.posterior.reader import Posterior

QUANTITY = ("quantity", "column", "contrast")


class Cells(NamedTuple):
    """Rows of a table of cells, for poststratification.

    Attributes:
        source: the rows.
        weights: (row,), such as counts of people.
        labels: column -> its text in each row, for `by`.
    """

    source: RowSource
    weights: np.ndarray
    labels: Mapping[str, np.ndarray]


class _Quantity(NamedTuple):
    """A prediction, a comparison or a slope.

    Attributes:
        names: its cells below `QUANTITY`.
        changes: functions of rows to the rows that are predicted.
        combine: makes one number of their predictions.
    """

    names: tuple[str, str, str]
    changes: Sequence[Callable[[HostRows], HostRows]]
    combine: Callable[..., np.ndarray]


class _ObservedRows:
    """The training rows as the source has them."""

    def __init__(self, shards: Shards) -> None:
        self._shards, self.num_rows = shards, shards.num_rows

    def read(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return self._shards.read_rows(start, stop)


def write_effects(
    bound: BoundModel, posterior: Posterior, options: EffectsOptions, path: Path, cells: Cells | None = None
) -> int:
    """Write the table and return the number of its lines.

    Args:
        bound: model and data.
        posterior: the draws.
        options: which effects.
        path: the table, as CSV.
        cells: rows to average with weights, in place of the training rows.

    Raises:
        ConfigError: a column, a level or a combination of options does not fit; the message names the key.
    """
    check_effects(bound, options if cells is None else options.model_copy(update={"by": ()}))
    columns, outcome = Columns(bound), find_outcome(bound.model, bound.shards)
    evaluator = Evaluator(
        bound, posterior, max_draws=options.draws, interval=options.interval, scale=options.scale,
        unit=(outcome.mean, outcome.scale), without_groups=options.group_effects == "zero",
    )  # fmt: skip
    names: Sequence[str] = [""] if evaluator.num_levels == 1 else [*map(str, range(evaluator.num_levels))]
    if evaluator.is_of_classes:
        names = class_names(outcome, evaluator.num_levels)
    elif options.scale == "predictor" and evaluator.num_levels > 1:
        names = class_names(outcome, evaluator.num_levels + 1)[1:]
    _check_measure(options, is_of_classes=evaluator.is_of_classes)
    quantities = _quantities(columns, options)
    settings = _settings(columns, options)
    is_typical = cells is None and _is_typical(options)
    by = [] if is_typical or not options.average else [*options.by]
    is_each = not is_typical and not options.average
    lead = [*QUANTITY, *options.at, *by, *(["row"] if is_each else [])]
    num_lines = 0
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*lead, "level", *Statistics._fields])
        for labels, found in _found(evaluator, columns, quantities, settings, bound, cells, by, is_typical, is_each):
            for line in _lines(labels, evaluator, found, names):
                writer.writerow(line)
                num_lines += 1
    return num_lines


def check_effects(bound: BoundModel, options: EffectsOptions, latents: Shapes | None = None) -> None:
    """Check that the model predicts single rows, and that columns and measure exist and fit.

    Args:
        bound: model and data.
        options: which effects.
        latents: shapes of a draw, to check the measure; None where draws will tell.

    Raises:
        ConfigError: they do not; the message names the key.
    """
    if bound.model.takes_all_rows or (bound.model.local_latents and bound.shards.group_field is None):
        raise ConfigError(f"key 'effects': model {type(bound.model).__name__} does not predict rows with values of your choice", "use a model of single rows, such as glm")  # fmt: skip
    columns = Columns(bound)
    if options.comparisons or options.slopes:
        _quantities(columns, options)
    _settings(columns, options)
    _averages(columns, options.by, None)
    if _is_typical(options) and options.by:
        raise ConfigError("key 'effects.by': averages need several rows", "use `rows: observed`")
    if latents is not None and "odds" in options.measure:
        _check_measure(options, is_of_classes=predicts_classes(bound, latents))


def _is_typical(options: EffectsOptions) -> bool:
    return (options.rows or ("typical" if options.at else "observed")) == "typical"


def _check_measure(options: EffectsOptions, *, is_of_classes: bool) -> None:
    if "odds" in options.measure and (options.scale == "predictor" or not is_of_classes):
        raise ConfigError(f"key 'effects.measure': {options.measure} needs predictions that are probabilities", "use `measure: difference` with `scale: predictor`, which is a log odds ratio for a logit link, or another measure")  # fmt: skip


def _found(
    evaluator: Evaluator, columns: Columns, quantities: Sequence[_Quantity], settings: Sequence[Mapping[str, float]],
    bound: BoundModel, cells: Cells | None, by: Sequence[str], is_typical: bool, is_each: bool,
) -> Iterator[tuple[list[list[str]], np.ndarray]]:  # fmt: skip
    """Yield labels of items, and their draws (draw, item, level)."""
    texts = [[columns[name].text(value) for name, value in setting.items()] for setting in settings]
    source: RowSource = cells.source if cells is not None else _ObservedRows(Shards(bound.shards.path))
    if is_typical:
        values = {name: np.array([each[name] for each in settings]) for name in settings[0]}
        source = FixedRows(columns.replaced(columns.typical_rows(len(settings)), values))
        settings = [{}]
    averages, groups = _averages(columns, by, cells)
    for quantity in quantities:
        for text, setting in zip(texts, settings, strict=False):
            changes = [
                lambda rows, change=change, setting=setting: change(columns.replaced(rows, setting))
                for change in quantity.changes
            ]
            lead = [*quantity.names, *text]
            if is_typical or is_each:
                for start, found in evaluator.each_row(source, changes):
                    rows = range(start, start + found[0].shape[1])
                    labels = [[*quantity.names, *texts[row]] if is_typical else [*lead, str(row + 1)] for row in rows]
                    yield labels, _combined(quantity, found)
                continue
            found, total = evaluator.averaged(source, changes, averages)
            kept = np.flatnonzero(total > 0)
            yield [[*lead, *groups[i]] for i in kept], _combined(quantity, [each[:, kept] for each in found])


def _combined(quantity: _Quantity, found: Sequence[np.ndarray]) -> np.ndarray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return quantity.combine(*found)


def _lines(
    labels: Sequence[Sequence[str]], evaluator: Evaluator, found: np.ndarray, names: Sequence[str]
) -> Iterator[list[str | float]]:
    statistics = evaluator.summarise(found.reshape(len(found), -1))
    for i, (label, name) in enumerate(itertools.product(labels, names)):
        yield [*label, name, *(float(each[i]) for each in statistics)]


def _quantities(columns: Columns, options: EffectsOptions) -> list[_Quantity]:
    """Return the quantities that are asked for: all comparisons by default."""
    given = options.comparisons
    steps = dict(given) if isinstance(given, dict) else dict.fromkeys(given, 1)
    if not (steps or options.predictions or options.slopes):
        steps = dict.fromkeys(columns.predictors, 1)
    measure, found = MEASURES[options.measure], []
    # A model without columns has nothing else.
    if options.predictions or not (steps or options.slopes):
        found.append(_Quantity(("prediction", "", ""), [lambda rows: rows], lambda values: values))
    for name, step in steps.items():
        for contrast in contrasts_of(columns[name], _as_step(name, step)):
            found.append(_Quantity((options.measure, name, contrast.label), change_of(columns, contrast), lambda low, high: measure(high, low)))  # fmt: skip
    for name in options.slopes:
        slope = slope_of(columns[name])
        found.append(_Quantity(("slope", name, slope.label), change_of(columns, slope), lambda low, high, width=slope.width: (high - low) / width))  # fmt: skip
    return found


def _as_step(name: str, step: object) -> float | str | tuple[float | str, float | str]:
    if isinstance(step, list):
        if len(step) != 2:
            raise ConfigError(f"key 'effects.comparisons.{name}': {len(step)} values", "write the two to compare, such as [1, 2]")  # fmt: skip
        return step[0], step[1]
    assert isinstance(step, int | float | str)
    return step


def _settings(columns: Columns, options: EffectsOptions) -> list[dict[str, float]]:
    """Return all combinations of the values of `at`, in the unit of the fields."""
    values = [
        [columns[name].value_of(each, f"key 'effects.at.{name}'") for each in given]
        for name, given in options.at.items()
    ]
    return [dict(zip(options.at, each, strict=True)) for each in itertools.product(*values)]


def _averages(columns: Columns, by: Sequence[str], cells: Cells | None) -> tuple[Averages, list[list[str]]]:
    """Return which rows are averaged together, and the labels of each average."""
    if cells is not None:
        texts = np.array([cells.labels[name] for name in by], dtype=str).T.reshape(len(cells.weights), len(by))
        names, codes = np.unique(texts, axis=0, return_inverse=True) if by else (texts[:1], np.zeros(len(texts), int))
        of_rows = codes.reshape(-1)

        def take(values: np.ndarray) -> Callable[[HostRows, int], np.ndarray]:
            return lambda rows, start: values[np.minimum(start + np.arange(_length(rows)), len(values) - 1)]

        return Averages(len(names), take(of_rows), take(cells.weights)), [[*map(str, each)] for each in names]
    of_columns = [columns[name] for name in by]
    for column in of_columns:
        if column.levels is None and not column.is_binary:
            raise ConfigError(f"key 'effects.by': '{column.name}' is a number", "use a category; for a number, give values with `at`")  # fmt: skip
    levels = [column.levels or ("0", "1") for column in of_columns]

    def codes_of(rows: HostRows, _: int) -> np.ndarray:
        code = np.zeros(_length(rows), np.int64)
        for column, own in zip(of_columns, levels, strict=True):
            values = np.asarray(rows[column.name], np.float64) * column.scale + column.shift
            code = code * len(own) + np.rint(values).astype(np.int64)
        return code

    labels = [[*each] for each in itertools.product(*levels)]
    return Averages(len(labels), codes_of, lambda rows, _: np.ones(_length(rows))), labels


def _length(rows: HostRows) -> int:
    return len(next(iter(rows.values())))
