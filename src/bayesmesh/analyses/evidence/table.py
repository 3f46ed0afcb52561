"""The table of evidences that an analysis writes and comparisons of models read: ``evidence.csv``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bayesmesh.analyses.figures.documents import Row, read_csv, render_csv
from bayesmesh.errors import StoreError
from bayesmesh.files import write_text

EVIDENCE = "evidence.csv"
"""Name of the output of an analysis that estimates the evidence."""

MOST_ERROR = 1.0
"""Beyond this standard error in nats, an estimate is not used."""


class Estimate(NamedTuple):
    """The log evidence by one method.

    Attributes:
        method: ``bridge``, ``tempered`` or ``prior``.
        log_evidence: natural logarithm of the mean likelihood under the prior; NaN without an estimate.
        error: standard error in nats; NaN if unknown.
        error_within: standard error by the formula, or NaN.
        error_between: standard error from the spread of independent parts, or NaN.
        num_parts: number of parts: chains and halves, or chain groups.
        num_draws: number of draws used, over all chains.
        num_left_out: draws without a finite position.
        digest: of the outcomes of all rows, see `bayesmesh.store.scores.digest_outcomes`; empty without outcomes.
        problem: why there is no estimate or no error; empty if there is none.
    """

    method: str
    log_evidence: float
    error: float
    error_within: float = math.nan
    error_between: float = math.nan
    num_parts: int = 0
    num_draws: int = 0
    num_left_out: int = 0
    digest: str = ""
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        """Whether there is an estimate with an error that is known and small enough."""
        return math.isfinite(self.log_evidence) and self.error <= MOST_ERROR


def write_evidence(path: Path, estimates: Sequence[Estimate]) -> None:
    """Write the table; NaN becomes an empty cell."""
    rows = [[None if each != each else each for each in estimate] for estimate in estimates]
    write_text(path, render_csv(Estimate._fields, rows))


def read_evidence(path: Path) -> list[Estimate]:
    """Return the estimates, one for each method.

    Raises:
        StoreError: the file is missing or damaged.
    """
    rows = read_csv(path, Estimate._fields)
    if not rows:
        raise StoreError(f"{path}: no estimate", "run the analysis that writes it again")
    return [_read(row) for row in rows]


def _read(row: Row) -> Estimate:
    return Estimate(
        row.text("method"), row.number("log_evidence"), row.number("error"), row.number("error_within"),
        row.number("error_between"), row.count("num_parts"), row.count("num_draws"), row.count("num_left_out"),
        row.text("digest"), row.text("problem"),
    )  # fmt: skip


def best_estimate(estimates: Sequence[Estimate]) -> Estimate | None:
    """Return the usable estimate with the smallest error; None without any. Draws of the prior only check the others."""
    return min(
        (each for each in estimates if each.is_usable and each.method != "prior"),
        key=lambda each: each.error,
        default=None,
    )
