"""Simulation-based calibration of every family: its density, its draws and the coordinates of its parameters belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh.models.options import FAMILIES
from bayesmesh.operations.check.calibration import calibrate
from samplers.test_calibration import passes, simulate
from tabular.base import Table
from tabular.runs import case_of

NUM_DATASETS, NUM_ROWS, NUM_WARMUP, NUM_DRAWS = 200, 40, 300, 120

# With a smaller phi, a share near 1 rounds to 1 in float32, where a beta has no density.
PRIORS = {
    "intercept": "normal(0, 0.5)", "coefficients": "normal(0, 0.5)", "sigma": "gamma(6, 8)", "nu": "gamma(8, 1)", "shape": "gamma(8, 4)",
    "phi": "gamma(40, 4)", "zi": "beta(3, 6)", "hu": "beta(3, 6)", "quantile": "beta(6, 4)", "cut_zero": "normal(-1.5, 0.5)",
    "gap": "gamma(9, 3)", "baseline": "dirichlet(3)",
}  # fmt: skip

NAMES_OF_PARAMETERS = {
    "normal": ["sigma"], "student_t": ["sigma", "nu"], "negative_binomial": ["shape"], "gamma": ["shape"], "ordinal": ["baseline"],
    "sequential": ["baseline"], "log_normal": ["sigma"], "weibull": ["shape"], "inverse_gaussian": ["shape"], "beta": ["phi"],
    "beta_binomial": ["phi"], "asymmetric_laplace": ["sigma", "quantile"], "ordered_beta": ["phi", "cut_zero", "gap"],
    "zero_inflated_poisson": ["zi"], "zero_inflated_negative_binomial": ["shape", "zi"], "hurdle_poisson": ["hu"],
    "hurdle_negative_binomial": ["shape", "hu"], "hurdle_gamma": ["shape", "hu"], "hurdle_log_normal": ["sigma", "hu"],
}  # fmt: skip


def table_of(family: str) -> tuple[Table, dict[str, Any]]:
    """The model of a family, and rows whose outcomes only fix its type: others are simulated."""
    r = np.random.default_rng(5)
    levels = np.array(["low", "mid", "high"])[np.arange(NUM_ROWS) % 3]
    y: Any = levels if family in ("categorical", "ordinal", "sequential") else 1.0 + 0.0 * np.arange(NUM_ROWS)
    y = {"beta": r.uniform(0.2, 0.8, NUM_ROWS), "ordered_beta": r.uniform(0.2, 0.8, NUM_ROWS)}.get(family, y)
    if family in ("bernoulli", "binomial", "beta_binomial", "poisson") or "zero" in family or "hurdle" in family:
        y = (np.arange(NUM_ROWS) % 2).astype(int)
    if np.asarray(y).dtype == float and family not in ("beta", "ordered_beta"):
        y = r.gamma(3, 0.5, NUM_ROWS)
    if family == "negative_binomial":
        y = (np.arange(NUM_ROWS) % 3).astype(int)
    trials = {"trials": "n"} if "binomial" in family and "negative" not in family else {}
    names = ["coefficients", *([] if family in ("ordinal", "sequential") else ["intercept"])]
    priors = {name: PRIORS[name] for name in (*names, *NAMES_OF_PARAMETERS.get(family, ()))}
    options = {"formula": "y ~ x", "family": family, "priors": priors, **trials}
    source = {"levels": {"y": ["low", "mid", "high"]}} if isinstance(y[0], str) else {}
    return Table(lambda _: {}, "glm", options, source), {
        "x": r.normal(size=NUM_ROWS),
        "n": np.full(NUM_ROWS, 6),
        "y": y,
    }


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_posteriors_of_a_family_are_calibrated(family: str, make_program: Any, record: Any, tmp_path: Path) -> None:
    table, columns = table_of(family)
    case = case_of("calibration", table, columns, tmp_path)
    programs, simulated = simulate(make_program, case, "nuts", NUM_DATASETS, NUM_WARMUP)
    found = calibrate(programs, simulated, NUM_DRAWS, seed=5)
    record(f"smallest of {len(found.p_values)} p {found.smallest:.2g} among {found.num_ranked} draws", "1e-05")
    assert passes(found), found


def censor(y: np.ndarray, kind: str) -> dict[str, np.ndarray]:
    """What is known of outcomes: the fields above and up_to; a third or so is censored."""
    least, most = (np.quantile(y, p) for p in (0.35, 0.65))
    if kind == "left":
        return {"above": np.where(y <= least, -np.inf, y), "up_to": np.maximum(y, least)}
    if kind == "right":
        return {"above": np.minimum(y, most), "up_to": np.where(y > most, np.inf, y)}
    is_between = (y > least) & (y <= most)
    return {"above": np.where(is_between, least, y), "up_to": np.where(is_between, most, y)}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["left", "right", "interval", "truncated"])
def test_posteriors_of_outcomes_known_in_part_are_calibrated(
    kind: str, make_program: Any, record: Any, tmp_path: Path
) -> None:
    table, columns = table_of("weibull")
    known = {"truncated": {"lower": 0.3}} if kind == "truncated" else {"censored": "status", "interval_end": "end"}
    status = np.array(["none", "left", "right", "interval"])[np.arange(NUM_ROWS) % 4]
    y = columns["y"] + 0.3
    case = case_of(
        "calibration", table._replace(options={**table.options, **known}),
        {**columns, "y": y, "status": status, "end": y + 1}, tmp_path,
    )  # fmt: skip
    programs, simulated = simulate(make_program, case, "nuts", NUM_DATASETS, NUM_WARMUP)
    if kind != "truncated":
        simulated = simulated._replace(rows=simulated.rows | censor(simulated.rows["outcome"], kind))
    found = calibrate(programs, simulated, NUM_DRAWS, seed=5)
    record(f"smallest of {len(found.p_values)} p {found.smallest:.2g} among {found.num_ranked} draws", "1e-05")
    assert passes(found), found
