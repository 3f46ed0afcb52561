"""Write and read sums over rows of leave-one-out scores: ``loo.csv``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bayesmesh.analyses.figures.documents import read_only_row, render_csv
from bayesmesh.diagnostics.psis import good_k
from bayesmesh.diagnostics.uniformity import assess_uniformity
from bayesmesh.files import write_text
from bayesmesh.store.scores import RowScores, sum_error

COLUMNS = (
    "elpd", "elpd_se", "elpd_mcse", "p_loo", "p_loo_se", "num_rows", "num_draws", "good_k", "largest_k", "num_high_k",
    "num_k_above_1", "held_out_elpd", "held_out_se", "held_out_rows", "pit_p_value", "pit_mean", "pit_sd", "num_matched",
    "num_refit", "num_parameters", "held_out_mcse",
)  # fmt: skip
"""Columns of ``loo.csv``, one row; sums in nats. The columns of `pit` are empty for classes, which have no order.
`num_parameters` counts the coordinates of the latents. `held_out_mcse` is the Monte Carlo error of `held_out_elpd`; it
includes that of the effects of new groups, which are drawn once per draw."""


def summarise(left_out: RowScores, held_out: RowScores | None, num_parameters: float = math.nan) -> dict[str, float]:
    """Return column -> number; see `COLUMNS`. Without held-out rows, their sums are NaN."""
    assert left_out.pareto_k is not None
    assert left_out.effective_parameters is not None
    k, effective, num_rows = left_out.pareto_k, left_out.effective_parameters, len(left_out.elpd)
    limit = good_k(left_out.num_draws)
    held = (*held_out.total, len(held_out.elpd)) if held_out is not None else (math.nan, math.nan, 0)
    pit = (math.nan, math.nan, math.nan)
    if left_out.pit is not None:
        found = left_out.pit[np.isfinite(left_out.pit)]
        pit = (assess_uniformity(np.clip(found, 0, 1)).p_value, float(found.mean()), float(found.std()))
    values = (
        *left_out.total, left_out.monte_carlo_error,
        float(effective.sum()), sum_error(effective),
        num_rows, left_out.num_draws, limit, float(k.max()), int((k > limit).sum()), int((k > 1).sum()), *held, *pit,
        *(0 if each is None else int(each.sum()) for each in (left_out.is_matched, left_out.is_refit)),
        num_parameters, math.nan if held_out is None else held_out.monte_carlo_error,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def write_sums(path: Path, sums: Mapping[str, float]) -> None:
    """Write the sums as a table of one row."""
    write_text(path, render_csv(COLUMNS, [[sums[name] for name in COLUMNS]]))


def read_sums(path: Path) -> dict[str, float]:
    """Return column -> number of ``loo.csv``.

    Raises:
        StoreError: the file is damaged.
    """
    row = read_only_row(path, COLUMNS)
    return {name: row.number(name) for name in COLUMNS}
