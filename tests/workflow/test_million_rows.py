"""Many rows with effects of a group, from a CSV to the page: verdict, memory, gradients, and the numbers simulated with."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[2]

NUM_ROWS = 1_000_000
SLOPES, SD = {"x1": 0.5, "x2": -0.3}, 0.6
MOST_GRADIENTS = 15

NUM_DRAWS = 4_000
"""Draws of all chains, by default."""


class Case(NamedTuple):
    """Number of levels, how the outcome is simulated, further keys of the model, sd of the slopes of x1, and most memory in GiB."""

    num_levels: int
    outcome: Any
    options: dict[str, Any] = {}  # noqa: RUF012  # a default that nothing changes
    slope_sd: float = 0
    most_memory: int = 2


def _normal(random: np.random.Generator, eta: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": (eta + random.normal(size=NUM_ROWS)).round(4)}


def _censored(random: np.random.Generator, eta: np.ndarray) -> dict[str, np.ndarray]:
    time, end = np.exp(eta) * random.weibull(1.5, NUM_ROWS), random.exponential(4, NUM_ROWS)
    return {"y": np.minimum(time, end).round(6).clip(1e-6), "known": np.where(time > end, "right", "none")}


def _with_zeros(random: np.random.Generator, eta: np.ndarray) -> dict[str, np.ndarray]:
    return {"y": np.where(random.random(NUM_ROWS) < 0.25, 0, random.gamma(2, np.exp(eta) / 2).round(6).clip(1e-6))}


CASES = {
    "normal": Case(10_000, _normal),
    "slopes": Case(100_000, _normal, {"family": "normal", "formula": "y ~ x1 + x2 + (1 + x1 | g)"}, 0.5, 3),
    "poisson": Case(10_000, lambda random, eta: {"y": random.poisson(np.exp(eta))}),
    "bernoulli": Case(10_000, lambda random, eta: {"y": random.binomial(1, 1 / (1 + np.exp(-eta)))}),
    "negative_binomial": Case(10_000, lambda random, eta: {"y": random.negative_binomial(3, 3 / (3 + np.exp(eta)))}),
    "hurdle_gamma": Case(1_000, _with_zeros),
    "weibull": Case(1_000, _censored, {"censored": "known"}),
}


def _passed(
    workspace: Any, table: dict[str, np.ndarray], experiment: dict[str, Any]
) -> tuple[Path, list[dict[str, str]]]:
    """Run an experiment on a table; return its folder and the rows of its summary, after a verdict that passes."""
    pd.DataFrame(table).to_csv(workspace.root / "rows.csv", index=False)
    whole = {"title": "Many rows", "data": {"source": "table", "files": "rows.csv"}, **experiment}
    workspace.experiment("trial").write_text(yaml.safe_dump(whole))
    # Other tests leave programs unoptimised.
    done = workspace.snakemake("--cores", "2", "trial", XLA_FLAGS="")
    assert done.returncode == 0, done.stderr[-4000:]
    folder = workspace.results / "trial"
    assert json.loads((folder / "diagnostics" / "verdict.json").read_text())["verdict"] == "pass"
    with (folder / "diagnostics" / "summary.csv").open() as file:
        return folder, [*csv.DictReader(file)]


@pytest.mark.nightly
@pytest.mark.parametrize("family", CASES)
def test_a_million_rows_pass_in_bounded_memory(family: str, fresh: Any, tmp_path: Path) -> None:
    case, random = CASES[family], np.random.default_rng(7)
    code = random.integers(0, case.num_levels, NUM_ROWS)
    columns = {name: random.normal(size=NUM_ROWS).round(4) for name in SLOPES}
    eta = 0.3 + random.normal(0, SD, case.num_levels)[code] + sum(b * columns[name] for name, b in SLOPES.items())
    if case.slope_sd:
        eta = eta + random.normal(0, case.slope_sd, case.num_levels)[code] * columns["x1"]
    table = {"g": np.char.add("g", code.astype(str)), **columns, **case.outcome(random, eta)}
    model = {"name": "glm", "formula": "y ~ x1 + x2 + (1 | g)", "family": family, **case.options}
    folder, summary = _passed(fresh(tmp_path / "copy"), table, {"model": model})
    # The first row of an array, which is that of the intercepts.
    found = {row["variable"]: row for row in reversed(summary)}
    # Effects that were simulated have a mean and a standard deviation of their own.
    own = {"b_x1": case.slope_sd / case.num_levels**0.5, "sd_g": SD / (2 * case.num_levels) ** 0.5}
    for name, truth in {**{f"b_{x}": b for x, b in SLOPES.items()}, "sd_g": SD}.items():
        mean, sd = float(found[name]["mean"]), float(found[name]["sd"])
        assert abs(mean - truth) < 4.5 * np.hypot(sd, own.get(name, 0)), name
    ledger = pd.read_csv(folder / "ledger.csv")
    draws = ledger[(ledger.job == "sample-group-000") & (ledger.phase == "sample")]
    memory, gradients = ledger.peak_memory_bytes.max(), draws.gradients.sum() / NUM_DRAWS
    assert memory <= case.most_memory * 2**30, memory
    assert gradients <= MOST_GRADIENTS, gradients


@pytest.mark.nightly
def test_twenty_slopes_in_ten_thousand_levels_pass_with_the_setting_of_the_guide(fresh: Any, tmp_path: Path) -> None:
    random, names = np.random.default_rng(11), [f"x{n}" for n in range(1, 21)]
    code, x = random.integers(0, 10_000, 100_000), random.normal(size=(100_000, 20)).round(4)
    b, sd = random.normal(0, 0.3, 20), random.uniform(0.1, 0.4, 20)
    slopes, intercepts = b + sd * random.normal(size=(10_000, 20)), 0.3 + random.normal(0, SD, 10_000)
    y = intercepts[code] + (x * slopes[code]).sum(1) + random.normal(size=100_000)
    table = {"g": np.char.add("g", code.astype(str)), **dict(zip(names, x.T, strict=True)), "y": y.round(4)}
    columns = " + ".join(names)
    model = {"name": "glm", "formula": f"y ~ {columns} + (1 + {columns} || g)", "family": "normal"}
    workspace = fresh(tmp_path / "copy")
    guide = (ROOT / "docs" / "how-to" / "formula.md").read_text(encoding="utf-8")
    setting = yaml.safe_load(guide.partition("With many slopes and levels")[2].split("```")[1].removeprefix("yaml"))
    _, summary = _passed(workspace, table, {"model": model, **setting})
    found = {row["label"]: row for row in summary if row["variable"] == "sd_g"}
    for name, truth in zip(names, sd, strict=True):
        # Effects that were simulated have a standard deviation of their own.
        error = np.hypot(float(found[name]["sd"]), truth / 20_000**0.5)
        assert abs(float(found[name]["mean"]) - truth) < 4.5 * error, name
