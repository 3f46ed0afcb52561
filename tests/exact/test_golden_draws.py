"""Draws of every kernel and metric equal those on file, unless the version of the sampler is raised.

Chains continue across versions of the package while `DRAWS` stays the same, so it has to be raised whenever the same seed
gives other draws.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import programs
from bayesmesh.config.blocks import METRICS
from bayesmesh.config.registry import list_components, load_component
from cases import make_case

FILE = Path(__file__).with_name("golden_draws.csv")
REWRITE = "REWRITE_GOLDENS=1 .venv/bin/python -m pytest -q tests/exact/test_golden_draws.py"

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 8, 3
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("gaussian", {}),
    "autoregression": ("log_density", {}),
    "ratings": ("rating_factorization", {"width": 1}),
    "ratings of width 2": ("rating_factorization", {"width": 2}),
}

# A measured curvature belongs to a mode.
INITIAL = {"curvature": {"method": "laplace"}}

SAMPLERS = [(kernel, "") for kernel in list_components("kernel")] + [("hmc", metric) for metric in METRICS]


def draw(kernel: str, metric: str, case: str) -> dict[str, list[float]]:
    """Return latent -> its mean, and its first entry in each draw of the first chain, in float64."""
    model, options = CASES[case]
    at_least = load_component("kernel", kernel).min_chains
    built = programs.build(
        make_case(model, **options), kernel, num_chains=max(NUM_CHAINS, at_least), num_warmup=NUM_WARMUP,
        most_draws=NUM_DRAWS, is_optimised=False, initial=INITIAL.get(metric), **({"metric": metric} if metric else {}),
    )  # fmt: skip
    draws = built.run(NUM_DRAWS).draws
    return {name: [float(x.mean()), *x.reshape(NUM_DRAWS, -1)[:, 0].tolist()] for name, x in draws.items()}


def golden() -> dict[tuple[str, ...], list[float]]:
    """Return (kernel, metric, case, latent) -> the numbers on file."""
    rows = list(csv.reader(FILE.read_text().splitlines()))[1:] if FILE.exists() else []
    return {tuple(row[:4]): [float(x) for x in row[4:]] for row in rows}


def write(entries: dict[tuple[str, ...], list[float]]) -> None:
    header = ["kernel", "metric", "case", "latent", "mean", *(f"draw_{i}" for i in range(NUM_DRAWS))]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([header, *([*key, *map(repr, values)] for key, values in sorted(entries.items()))])


@pytest.mark.parametrize(("kernel", "metric"), SAMPLERS, ids=lambda name: name or "default")
def test_draws_are_those_on_file(kernel: str, metric: str) -> None:
    needs_units = load_component("kernel", kernel).needs_normal_units
    for case in [name for name in CASES if name.startswith("ratings") is needs_units]:
        found = {(kernel, metric, case, latent): values for latent, values in draw(kernel, metric, case).items()}
        if "REWRITE_GOLDENS" in os.environ:
            kept = {key: values for key, values in golden().items() if key[:3] != (kernel, metric, case)}
            write(kept | found)
        known = golden()
        assert found.keys() <= known.keys(), (
            f"{FILE.name} has no draws of {kernel} {metric}: add them with\n  {REWRITE} -k {metric or kernel}"
        )
        for key, values in found.items():
            np.testing.assert_allclose(
                values, known[key], rtol=1e-6, atol=1e-9,
                err_msg=f"{key}: other draws than before. If that is intended, raise DRAWS in"
                f" src/bayesmesh/config/versions.py, so that no chain continues with them, and run\n  {REWRITE}",
            )  # fmt: skip
