"""Write and read the tables of cross-validation: sums over all rows (``k_fold.csv``) and by fold (``folds.csv``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.figures.documents import read_csv, read_only_row, render_csv
from bayesmesh.files import write_text
from bayesmesh.store.scores import RowScores

COLUMNS = (
    "elpd", "elpd_se", "elpd_mcse", "num_rows", "num_clusters", "num_folds", "num_failed", "joint_elpd", "num_draws",
    "held_out_elpd", "held_out_se", "held_out_rows", "held_out_mcse", "scheme",
)  # fmt: skip
"""Columns of ``k_fold.csv``, one row; sums in nats. Without groups, there are as many clusters as rows, or as folds that are
scored as one."""


class Fold(NamedTuple):
    """Scores of a fold, a row of ``folds.csv``.

    Attributes:
        experiment: the refit.
        num_rows: rows that were left out.
        num_training_rows: rows from which the refit was sampled.
        elpd: sum of the log scores of these rows, in nats; NaN where rows have no scores of their own.
        elpd_mcse: its Monte Carlo standard error.
        joint_elpd: joint log predictive density of these rows, which also scores their dependence.
        joint_mcse: Monte Carlo standard error of `joint_elpd`.
        verdict: on its chains.
    """

    experiment: str
    num_rows: int
    num_training_rows: int
    elpd: float
    elpd_mcse: float
    joint_elpd: float
    joint_mcse: float
    verdict: str


def write_tables(
    sums: Path, table: Path, left_out: RowScores, held_out: RowScores | None, folds: Sequence[Fold], num_rows: int
) -> str:
    """Write both tables, and return the sum as text.

    Args:
        sums: path of ``k_fold.csv``.
        table: path of ``folds.csv``.
        left_out, held_out: scores of rows, or of folds that are scored as one.
        folds: the scores of each fold.
        num_rows: rows that were left out.
    """
    (elpd, error), mcse = left_out.total, left_out.monte_carlo_error
    clusters = len(left_out.elpd) if left_out.cluster is None else len(np.unique(left_out.cluster))
    held = (*held_out.total, len(held_out.elpd)) if held_out is not None else (math.nan, math.nan, 0)
    num_failed = len(left_out.failed)
    joint = sum(fold.joint_elpd for fold in folds)
    row = (elpd, error, mcse, num_rows, clusters, len(folds), num_failed, joint, left_out.num_draws, *held)
    held_mcse = math.nan if held_out is None else held_out.monte_carlo_error
    write_text(sums, render_csv(COLUMNS, [[*row, held_mcse, left_out.scheme]]))
    write_text(table, render_csv(Fold._fields, folds))
    failed = f", {num_failed} of {len(folds)} folds have failed their gates" if num_failed else ""
    return f"elpd {elpd:.1f} ± {error:.1f} on {num_rows} rows, {left_out.scheme}{failed}"


def read_sums(path: Path) -> tuple[dict[str, float], str]:
    """Return column -> number of ``k_fold.csv``, and the scheme in words.

    Raises:
        StoreError: the file is damaged.
    """
    row = read_only_row(path, COLUMNS)
    return {name: row.number(name) for name in COLUMNS[:-1]}, row.text(COLUMNS[-1])


def read_folds(path: Path) -> list[Fold]:
    """Return the rows of ``folds.csv``.

    Raises:
        StoreError: the file is damaged.
    """
    return [
        Fold(
            row.text("experiment"), int(row.number("num_rows")), int(row.number("num_training_rows")),
            row.number("elpd"), row.number("elpd_mcse"), row.number("joint_elpd"), row.number("joint_mcse"), row.text("verdict"),
        )
        for row in read_csv(path, Fold._fields)
    ]  # fmt: skip
