"""Bins of rows by predictors, by groups and by the prediction itself, within which residuals are summed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Shaped
from scipy.stats import spearmanr

from bayesmesh.data.shards import Shards

MOST_BINS, BIN_ROWS = 10, 20
"""Bins of a number, and the fewest rows of one."""

MOST_LEVELS = 200
"""Levels of a category that have a bin; the rarest of more are left out."""

MOST_VARIABLES = 32

MIN_ROWS = 2 * BIN_ROWS
"""Fewest rows that are binned."""

EDGE_ROWS = 65_536
"""Rows from which the edges of bins are taken."""

_SAME = 0.999
"""Rank correlation from which a column is the outcome itself in another form."""


class Variable(NamedTuple):
    """Rows by bins of one variable.

    Attributes:
        name: of the column.
        codes: (row,) int16, bin of each row; -1 for none.
        labels: one for each bin.
    """

    name: str
    codes: Int[np.ndarray, " row"]
    labels: tuple[str, ...]


def bin_numbers(name: str, values: Shaped[np.ndarray, " row"]) -> Variable | None:
    """Return bins of equal counts, as far as ties allow; None if all values are alike.

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
        labels = [f"{value:.4g}" for value in distinct]
    else:
        edges = np.unique(np.quantile(known, np.arange(1, number) / number))
        edges = edges[edges > distinct[0]]
        ends = [distinct[0], *edges, distinct[-1]]
        labels = [f"{low:.4g} to {high:.4g}" for low, high in itertools.pairwise(ends)]
    if len(labels) < 2:
        return None
    codes = np.where(is_known, np.searchsorted(edges, values, side="right"), -1)
    return Variable(name, codes.astype(np.int16), tuple(labels))


def bin_levels(name: str, codes: Int[np.ndarray, " row"], levels: tuple[str, ...]) -> Variable | None:
    """Return one bin for each level that occurs, the most frequent where they are many; None if there is one only."""
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

    Columns with a role such as weights are left out, and those that hold the outcome itself.

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
    roles = set(source.roles.values())
    columns = _read_columns(source, [name for name in source.fields if name not in roles])
    found: list[Variable] = []
    for name, values in columns.items():
        if len(found) == MOST_VARIABLES:
            break
        in_order = values[order]
        if _is_outcome(in_order, outcome):
            continue
        about = source.variables.get(name)
        is_category = about is not None and about.kind == "category"
        made = bin_levels(name, in_order, about.levels) if about and is_category else bin_numbers(name, in_order)
        if made is not None:
            found.append(made)
    return found


def _read_columns(source: Shards, names: list[str]) -> Mapping[str, np.ndarray]:
    """Return columns of one number a row, and the columns of small matrices, (row,) each, in the order of the source."""
    found: dict[str, list[np.ndarray]] = {}
    for block in source.blocks():
        for name in names:
            values = block[name]
            if values.dtype.kind not in "biuf" or values.ndim > 2:
                continue
            if values.ndim == 1:
                found.setdefault(name, []).append(values)
            elif values.shape[1] <= MOST_VARIABLES:
                labels = source.labels.get(name) or tuple(f"{name}[{i}]" for i in range(values.shape[1]))
                for i, label in enumerate(labels):
                    found.setdefault(label, []).append(values[:, i])
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _is_outcome(values: np.ndarray, outcome: np.ndarray) -> bool:
    some = slice(0, EDGE_ROWS)
    one, other = values[some].astype(np.float64), outcome[some].astype(np.float64)
    is_known = np.isfinite(one) & np.isfinite(other)
    if is_known.sum() < 3 or np.ptp(one[is_known]) == 0 or np.ptp(other[is_known]) == 0:
        return False
    return abs(float(spearmanr(one[is_known], other[is_known]).statistic)) > _SAME
