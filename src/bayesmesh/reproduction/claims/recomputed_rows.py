"""Tables of single numbers computed again, with NumPy, from the inputs that stand in each of their rows.

A number that was typed into a table, or that a stage returns without computing it, agrees with its receipt and not with
a second computation. *Every* row is computed: beside the published point there are points that were drawn anew in the
run, and those nobody can have typed in.
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
    """Compute all rows of a table, hold a column to them, and return the value of the rows that are asked for.

    Args:
        results: folder to read from.
        file: the table.
        column: that is held to the computed values.
        compute: value of a row.
        tolerance: difference that is let pass, relative and absolute.
        where: the rows that are asked for, see `Results.rows`.
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
