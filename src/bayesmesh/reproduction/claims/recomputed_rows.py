"""Recompute tables of single numbers with NumPy, from the inputs in each of their rows.

A number that was typed into a table, or returned without being computed, agrees with its receipt but not with a second
computation. *Every* row is recomputed: besides the published point there are points drawn in the run, whose values
cannot have been typed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from bayesmesh.errors import StoreError
from bayesmesh.reproduction.claims.results import Reading, Results

__all__ = ["AGAIN", "Row", "cell", "recompute"]

AGAIN = "run the benchmark again"

Row = Mapping[str, str]


def recompute(
    results: Results,
    file: str,
    column: str,
    compute: Callable[[Row], float],
    tolerance: float,
    where: Mapping[str, float | str],
    choose: Callable[[Iterable[float]], float] = max,
) -> Reading:
    """Recompute all rows of a table, compare a column with them, and return the value of the requested rows.

    Args:
        results: folder to read from.
        file: the table.
        column: column to compare with the computed values.
        compute: returns the value of a row.
        tolerance: allowed difference, relative and absolute.
        where: the requested rows, see `Results.rows`.
        choose: one value of several rows.

    Raises:
        NotRun: there is no table, or no such row.
        StoreError: a row says another number, or only the published point is there.
    """
    rows, wanted = results.rows(file).records(), results.rows(file, **where).records()
    for row in rows:
        try:
            found = compute(row)
        except (KeyError, ValueError, ZeroDivisionError) as error:
            raise StoreError(f"{file}: a row has no inputs to compute it from: {error!r}", AGAIN) from error
        said = cell(file, row, column)
        if not math.isclose(found, said, rel_tol=tolerance, abs_tol=tolerance):
            inputs = ", ".join(f"{k} {v}" for k, v in row.items() if k != column)
            raise StoreError(f"{file}: says {said:.10g}, and NumPy gives {found:.10g} ({inputs})", AGAIN)
    if len(rows) == len(wanted):
        raise StoreError(f"{file}: has no row beside the published ones to compare with", AGAIN)
    return Reading(choose(map(compute, wanted)), file)


def cell(file: str, row: Row, column: str) -> float:
    """Return a cell as a number.

    Raises:
        StoreError: it is not a number, or the table has no such column.
    """
    try:
        return float(row[column])
    except (KeyError, ValueError) as error:
        raise StoreError(f"{file}: column '{column}' holds no number: {error}", AGAIN) from error
