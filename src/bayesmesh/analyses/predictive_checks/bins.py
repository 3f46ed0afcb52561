"""Bins of rows by predictors, by groups and by the prediction itself, within which residuals are summed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped
from scipy.stats import spearmanr

from bayesmesh.analyses.figures import formats
from bayesmesh.data.shards import Shards

MOST_BINS, BIN_ROWS = 10, 20
"""Bins of a number, and the fewest rows of one."""

MOST_LEVELS = 200
"""Largest number of levels of a category with a bin; beyond it, the rarest are left out."""

FEWEST_ROWS = 3
"""Rows of a whole number, on average, from which it may be the name of a group."""

MOST_VARIABLES = 32

MIDDLE = (0.05, 0.95)
"""Quantiles that enclose the middle 90% of the outcomes of a bin."""

MIN_ROWS = 2 * BIN_ROWS
"""Fewest rows that are binned."""

COMPARED_ROWS = 65_536
"""About the largest number of rows at which a column is compared with the outcome."""

_SAME = 0.999
"""Rank correlation from which a column counts as the outcome itself in another form."""


class Variable(NamedTuple):
    """Rows by bins of one variable.

    Attributes:
        name: of the column.
        codes: (row,) int16, bin of each row; -1 for none.
        labels: one for each bin, in the unit of the table.
        at: mean of the numbers in each bin; empty for levels.
        middle: (bin, 2), quantiles that enclose the middle 90% of the outcomes of each bin; empty if they were not
            computed.
        scores: (row,) float32, the numbers, centred, in standard deviations, 0 where unknown; empty for levels.
        is_field: whether a formula can name the column.
        is_whole: whether these are a few whole numbers, which may be the names of groups.
    """

    name: str
    codes: Int[np.ndarray, " row"]
    labels: tuple[str, ...]
    at: tuple[float, ...] = ()
    middle: tuple[tuple[float, float], ...] = ()
    scores: Shaped[np.ndarray, " row"] = np.zeros(0, np.float32)
    is_field: bool = True
    is_whole: bool = False


def bin_numbers(name: str, values: Shaped[np.ndarray, " row"]) -> Variable | None:
    """Return bins of equal counts, as far as ties allow; None if all values are equal.

    >>> found = bin_numbers("x", np.arange(60.0))
    >>> found.labels, np.bincount(found.codes).tolist()
    (('0 to 19.67', '19.67 to 39.33', '39.33 to 59'), [20, 20, 20])
    """
    is_known = np.isfinite(values)
    known = values[is_known].astype(np.float64)
    if known.size < MIN_ROWS:
        return None
    number = min(MOST_BINS, known.size // BIN_ROWS)
    distinct = np.unique(known)
    if len(distinct) <= number:
        edges = distinct[1:]
        labels = formats.distinct(distinct.tolist())
    else:
        edges = np.unique(np.quantile(known, np.arange(1, number) / number))
        edges = edges[edges > distinct[0]]
        ends = formats.distinct([float(end) for end in (distinct[0], *edges, distinct[-1])])
        labels = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
    if len(labels) < 2:
        return None
    codes = np.where(is_known, np.searchsorted(edges, values, side="right"), -1)
    inside = codes[is_known]
    sums, counts = (np.bincount(inside, weights, len(labels)) for weights in (known, None))
    at = np.divide(sums, counts, out=np.full(len(labels), np.nan), where=counts > 0)
    scores = np.where(is_known, (values - known.mean()) / known.std(), 0).astype(np.float32)
    is_whole = len(distinct) <= min(MOST_LEVELS, known.size // FEWEST_ROWS) and np.allclose(
        distinct, np.rint(distinct), rtol=0, atol=1e-6
    )
    return Variable(name, codes.astype(np.int16), tuple(labels), tuple(at.tolist()), scores=scores, is_whole=is_whole)


def bin_levels(name: str, codes: Int[np.ndarray, " row"], levels: tuple[str, ...]) -> Variable | None:
    """Return one bin for each level that occurs, or for the most frequent of many; None if there is only one."""
    found, counts = np.unique(codes, return_counts=True)
    chosen = np.sort(found[np.argsort(-counts, kind="stable")[:MOST_LEVELS]])
    if len(chosen) < 2 or len(codes) < MIN_ROWS:
        return None
    place = np.minimum(np.searchsorted(chosen, codes), len(chosen) - 1)
    places = np.where(chosen[place] == codes, place, -1)
    labels = tuple(levels[i] if 0 <= i < len(levels) else str(i) for i in chosen.tolist())
    return Variable(name, places.astype(np.int16), labels)


def bin_columns(shards: Shards, outcome: Shaped[np.ndarray, " row"]) -> list[Variable]:
    """Return the bins of the columns that the data have, whether or not the model reads them.

    Columns with a role, such as weights, and columns that hold the outcome itself are left out.

    Args:
        shards: the data as the model takes them.
        outcome: of all rows, in the model's order.

    Returns:
        Codes in the model's order, at most `MOST_VARIABLES` columns.
    """
    source = Shards(shards.path)
    if source.kind != "rows" or source.num_rows != len(outcome) or len(outcome) < MIN_ROWS:
        return []
    order = shards.source_rows()
    columns = _list_columns(source)
    found: list[Variable] = []
    for some in itertools.batched(columns, MOST_VARIABLES):
        for column, values in zip(some, _read_columns(source, some), strict=True):
            in_order = values[order]
            about = source.variables.get(column.label)
            if len(found) == MOST_VARIABLES or _is_outcome(in_order, outcome):
                continue
            if about is not None and about.kind == "category":
                made = bin_levels(column.label, in_order, about.levels)
            else:
                in_unit = in_order if about is None else in_order * about.scale + about.mean
                made = bin_numbers(column.label, in_unit)
            if made is not None:
                found.append(made._replace(middle=middle_of(made, outcome), is_field=column.position is None))
        if len(found) == MOST_VARIABLES:
            break
    return found


def middle_of(variable: Variable, outcome: Shaped[np.ndarray, "... row"]) -> tuple[tuple[float, float], ...]:
    """Return `Variable.middle` of outcomes, or of several sets of outcomes together."""
    codes = np.broadcast_to(variable.codes, outcome.shape).ravel()
    in_order = outcome.ravel()[np.lexsort((outcome.ravel(), codes))].astype(np.float64)
    ends = np.searchsorted(np.sort(codes), np.arange(len(variable.labels) + 1))
    parts = [in_order[start:stop] for start, stop in itertools.pairwise(ends)]
    found = [np.quantile(part, MIDDLE) if len(part) else np.full(2, np.nan) for part in parts]
    return tuple((float(low), float(high)) for low, high in found)


class _Column(NamedTuple):
    """A column of the data: a field with one number per row, or a column of a field with a small matrix."""

    label: str
    field: str
    position: int | None


def _list_columns(source: Shards) -> list[_Column]:
    """Return the columns without a role; their labels are unique."""
    roles = set(source.roles.values())
    found: list[_Column] = []
    for name, spec in source.fields.items():
        if name in roles or np.dtype(spec.dtype).kind not in "biuf" or len(spec.shape) > 1:
            continue
        if not spec.shape:
            found.append(_Column(name, name, None))
        elif spec.shape[0] <= MOST_VARIABLES:
            labels = source.labels.get(name) or tuple(f"{name}[{i}]" for i in range(spec.shape[0]))
            named = [f"{name}: {label}" if label in source.fields else label for label in labels]
            found += [_Column(label, name, i) for i, label in enumerate(named)]
    taken = [column.label for column in found]
    return [
        each._replace(label=f"{each.field}: {each.label}") if taken.count(each.label) > 1 else each for each in found
    ]


def _read_columns(source: Shards, columns: Sequence[_Column]) -> list[np.ndarray]:
    """Return the columns, (row,) each, in the order of the source."""
    parts: list[list[np.ndarray]] = [[] for _ in columns]
    for block in source.blocks():
        for part, column in zip(parts, columns, strict=True):
            values = block[column.field]
            part.append(values if column.position is None else values[:, column.position])
    return [np.concatenate(part) for part in parts]


def _is_outcome(values: np.ndarray, outcome: np.ndarray) -> bool:
    some = slice(None, None, 1 + len(values) // COMPARED_ROWS)
    one, other = values[some].astype(np.float64), outcome[some].astype(np.float64)
    is_known = np.isfinite(one) & np.isfinite(other)
    if is_known.sum() < 3 or np.ptp(one[is_known]) == 0 or np.ptp(other[is_known]) == 0:
        return False
    return abs(float(spearmanr(one[is_known], other[is_known]).statistic)) > _SAME
