"""Columns of the data as effects vary them: kind, levels, a typical value, and the pairs of values to compare."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.base import BoundModel
from bayesmesh.config.data_spec import HostRows, Variable
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, suggest

MOST_SAMPLED = 100_000
"""Values of a column, evenly spaced over its rows, from which quantiles are computed."""

BLOCK_ROWS = 65_536
"""Rows of one column in memory at a time."""

STEP = 1e-5
"""Distance of the two values of a slope, relative to the range of the column."""

Value = float | int | str
"""A number, or the name of a level."""

Step = float | str | tuple[Value, Value]
"""How far apart the values of a comparison are, see `contrasts_of`."""


class Column(NamedTuple):
    """One column with one value a row, in the unit in which its field is stored.

    Attributes:
        name: of the column.
        levels: names of its codes; None for a number.
        typical: the mean of a number, the most frequent level of a category.
        mean, sd, low, high: of its numbers; `sd` with ddof=1.
        sample: some of its values, ascending.
        is_binary: whether it is a number that is only 0 or 1 in the unit of the table.
        shift, scale: a number of the table is ``value * scale + shift``.
        counts: rows of each level.
    """

    name: str
    levels: tuple[str, ...] | None
    typical: float
    mean: float = math.nan
    sd: float = math.nan
    low: float = math.nan
    high: float = math.nan
    sample: np.ndarray = np.zeros(0)
    is_binary: bool = False
    shift: float = 0.0
    scale: float = 1.0
    counts: np.ndarray = np.zeros(0, np.int64)

    def value_of(self, given: Value, key: str) -> float:
        """Return a number of the table, or the name of a level, as its field stores it.

        Raises:
            ConfigError: no such level, or not a number.
        """
        if self.levels is not None:
            if str(given) not in self.levels:
                raise ConfigError(f"{key}: '{self.name}' has no level '{given}'", suggest(str(given), self.levels))
            return float(self.levels.index(str(given)))
        try:
            return (float(given) - self.shift) / self.scale
        except ValueError as error:
            raise ConfigError(
                f"{key}: '{given}' is not a number, and '{self.name}' is a column of numbers", "write a number"
            ) from error

    def text(self, value: float) -> str:
        """Return a value as the table has it."""
        return f"{value * self.scale + self.shift:.10g}" if self.levels is None else self.levels[round(value)]

    def quantiles(self, *shares: float) -> list[float]:
        """Return quantiles of its numbers."""
        return [float(each) for each in np.quantile(self.sample, shares)]


def names_of(shards: Shards) -> list[str]:
    """Return the columns with one value a row."""
    return [name for name, field in shards.fields.items() if not field.shape]


def read_column(shards: Shards, name: str, *, has_codes: bool) -> Column:
    """Return a column of the training rows as the source has them, read in blocks.

    Args:
        shards: the rows of the source.
        name: of the column.
        has_codes: whether it holds codes from 0, with or without names.
    """
    about = shards.variables.get(name, Variable("number"))
    is_category = has_codes
    spacing, shift = max(1, -(-shards.num_rows // MOST_SAMPLED)), 0.0
    counts, sums, ends, sample = np.zeros(0, np.int64), np.zeros(2), [math.inf, -math.inf], []
    is_binary = not is_category
    for start in range(0, shards.num_rows, BLOCK_ROWS):
        found = shards.read_field(name, start=start, stop=min(shards.num_rows, start + BLOCK_ROWS))
        if is_category:
            block = np.bincount(found.astype(np.int64), minlength=max(len(counts), len(about.levels)))
            block[: len(counts)] += counts
            counts = block
            continue
        values = found.astype(np.float64)
        shift = float(values[0]) if start == 0 else shift
        sums += (values - shift).sum(), np.square(values - shift).sum()
        ends = [min(ends[0], float(values.min())), max(ends[1], float(values.max()))]
        sample.append(values[-start % spacing :: spacing])
        is_binary = is_binary and bool(np.isin(values * about.scale + about.mean, (0.0, 1.0)).all())
    if is_category:
        levels = about.levels or tuple(map(str, range(len(counts))))
        return Column(name, levels, float(counts.argmax()), counts=counts)
    number = shards.num_rows
    mean = shift + float(sums[0]) / number
    variance = max(0.0, sums[1] - sums[0] ** 2 / number) / max(1, number - 1)
    values = np.sort(np.concatenate(sample))
    return Column(
        name, None, mean, mean, math.sqrt(variance), ends[0], ends[1], values, is_binary, about.mean, about.scale
    )


class Columns:
    """The columns of an experiment's data, each read when it is first used.

    Args:
        bound: model and data.

    Attributes:
        outcome: column of the outcome; empty if it is not one.
        groups: columns of groups.
        used: columns on which predictions depend, in the order of the data.
        predictors: those that are neither groups nor have a role.
    """

    def __init__(self, bound: BoundModel) -> None:
        model, shards = bound.model, Shards(bound.shards.path)
        self._shards, self._found = shards, dict[str, Column]()
        self.groups = model.grouping_columns()
        self.outcome = model.outcome_field() or ""
        used, roles = model.prediction_fields(), {*shards.roles.values()}
        roles |= {
            str(getattr(model.options, role, None))
            for role in ("weights", "offset", "exposure", "trials", "known_error")
        }
        bounds = getattr(model.options, "truncated", None)
        roles |= {str(getattr(bounds, end, None)) for end in ("lower", "upper")}
        self._first, self._trials = shards.read_rows(0, 1), getattr(model.options, "trials", None)
        self.used = [n for n in names_of(shards) if (n in used if used is not None else n != self.outcome)]
        self.predictors = [name for name in self.used if name not in roles | {*self.groups}]

    def __getitem__(self, name: str) -> Column:
        """Return a column.

        Raises:
            ConfigError: the data have no such column with one value a row.
        """
        if name not in self._found:
            valid = names_of(self._shards)
            if name not in valid:
                problem = (
                    "holds several numbers in a row" if name in self._shards.fields else "is not a column of the data"
                )
                raise ConfigError(f"effects: '{name}' {problem}", suggest(name, valid))
            self._found[name] = read_column(self._shards, name, has_codes=self._has_codes(name))
        return self._found[name]

    def typical_rows(self, number: int) -> dict[str, np.ndarray]:
        """Return equal rows of the source: numbers at their means, categories at their most frequent level.

        Fields that predictions do not read, and those with several numbers in a row, have the values of the first row.
        """
        found = {}
        for name, first in self._first.items():
            value = first
            if name in self.used:
                typical = self[name].typical
                value = np.asarray([round(typical) if name == self._trials else typical], self.dtype_of(name))
            found[name] = np.repeat(value, number, axis=0)
        return found

    def dtype_of(self, name: str) -> np.dtype:
        """Return the dtype in which a field takes any of its values: float64 for numbers, that of the codes of a category."""
        return self._first[name].dtype if self._has_codes(name) else np.dtype(np.float64)

    def _has_codes(self, name: str) -> bool:
        about = self._shards.variables.get(name)
        return name in self.groups if about is None else about.kind == "category"

    def replaced(self, rows: HostRows, values: Mapping[str, np.ndarray | float]) -> dict[str, np.ndarray]:
        """Return rows with some columns replaced."""
        number = len(next(iter(rows.values())))
        new = {
            name: np.broadcast_to(np.asarray(value), number).astype(self.dtype_of(name))
            for name, value in values.items()
        }
        return {**rows, **new}


Change = Callable[[np.ndarray], np.ndarray | float]
"""Maps the values of a column to others."""


class Contrast(NamedTuple):
    """Two values of a column to compare in each row.

    Attributes:
        column: name of the column.
        label: the change in words, such as ``b - a`` or ``+1``.
        low, high: the values, given those of the rows.
        width: divisor of the difference, for slopes; 1 for comparisons.
    """

    column: str
    label: str
    low: Change
    high: Change
    width: float = 1.0


def slope_of(column: Column) -> Contrast:
    """Return the change of a central difference.

    Raises:
        ConfigError: the column is a category.
    """
    if column.levels is not None:
        raise ConfigError(f"key 'effects.slopes': '{column.name}' is a category", f"use comparisons: [{column.name}]")
    half = STEP / 2 * ((column.high - column.low) or 1.0)
    return Contrast(
        column.name, "dY/dX", lambda values: values - half, lambda values: values + half, 2 * half * column.scale
    )


def contrasts_of(column: Column, step: Step) -> list[Contrast]:
    """Return the comparisons of a column.

    Args:
        column: a number or a category.
        step: for a number, the distance from its value in the row; ``sd`` or ``2sd`` around the mean; ``iqr`` or
            ``minmax``; or two numbers. For a category ``reference``, every level with the first; ``sequential``, each with
            the one before; ``pairwise``; or two levels. The step 1 stands for ``reference`` where a column is a category,
            and for 1 instead of 0 where it is only 0 or 1.

    Raises:
        ConfigError: the step does not fit the column.
    """
    key = "key 'effects.comparisons'"
    if isinstance(step, tuple):
        return [_fixed(column, *(column.value_of(each, key) for each in step))]
    if column.levels is None:
        if isinstance(step, int | float):
            if column.is_binary and step == 1:
                return [_fixed(column, *(column.value_of(each, key) for each in (0, 1)))]
            size = step / column.scale
            return [Contrast(column.name, f"+{step:g}", lambda values: values, lambda values: values + size)]
        widths = {"sd": column.sd / 2, "2sd": column.sd}
        ends = {name: (column.mean - half, column.mean + half) for name, half in widths.items()}
        ends |= {"iqr": (column.quantiles(0.25)[0], column.quantiles(0.75)[0]), "minmax": (column.low, column.high)}
        if step not in ends:
            raise ConfigError(f"{key}: '{column.name}' is a number, and '{step}' is not a step of one", f"write a number, two numbers as [1, 2], or one of {', '.join(ends)}")  # fmt: skip
        return [_fixed(column, *ends[step])._replace(label=step)]
    numbers = range(len(column.levels))
    pairs: dict[str, Sequence[tuple[int, int]]] = {
        "reference": [(0, i) for i in numbers[1:]],
        "sequential": [(i - 1, i) for i in numbers[1:]],
        "pairwise": [*itertools.combinations(numbers, 2)],
    }
    name = "reference" if step == 1 else str(step)
    if name not in pairs:
        raise ConfigError(f"{key}: '{column.name}' is a category, and '{step}' is not a choice of its levels", f"write two levels as [a, b], or one of {', '.join(pairs)}")  # fmt: skip
    return [_fixed(column, low, high) for low, high in pairs[name]]


def _fixed(column: Column, low: float, high: float) -> Contrast:
    return Contrast(column.name, f"{column.text(high)} - {column.text(low)}", lambda _: low, lambda _: high)
