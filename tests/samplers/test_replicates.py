"""Posteriors of many datasets of unequal length, sampled together by NUTS, against their closed forms."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.values import GroupKey
from cases import make_case

COUNTS = (3, 11, 7)
CHAINS, WARMUP, DRAWS, MOST_Z = 4, 300, 500, 4.5


@pytest.mark.verify
def test_each_dataset_has_its_own_posterior(make_program: Any, record: Any) -> None:
    made = make_case("gaussian", num_rows=max(COUNTS), dtype="float64")
    case = dataclasses.replace(made, spec=dataclasses.replace(made.spec, num_rows=max(COUNTS)))
    generator = np.random.default_rng(2)
    rows = {
        "x": generator.normal(size=(sum(COUNTS), *case.rows["x"].shape[1:])) + np.repeat([-2, 0, 2], COUNTS)[:, None]
    }
    program = make_program(case, "nuts", CHAINS, WARMUP, 128, row_tile=max(COUNTS))
    programs = DatasetPrograms(program, COUNTS, block=2)
    found = programs.run(programs.arguments(GroupKey(4, 0)), programs.put_data(rows), DRAWS).latents["mean"]
    noise, scale = case.spec.constants["noise_scale"], case.options.prior_scale
    first, worst = np.cumsum([0, *COUNTS]), 0.0
    for number, count in enumerate(COUNTS):
        precision = count / noise**2 + 1 / scale**2
        mean = rows["x"][first[number] : first[number + 1]].sum(axis=0) / noise**2 / precision
        draws = np.swapaxes(found[number], 0, 1)
        table = convergence_table(draws)
        square = convergence_table((draws - mean) ** 2)
        z = [(table["mean"] - mean) / table["mcse_mean"], (square["mean"] - 1 / precision) / square["mcse_mean"]]
        worst = max(worst, float(np.abs(z).max()))
    record(f"largest |z| of {2 * found.shape[-1] * len(COUNTS)} moments {worst:.2f}", f"{MOST_Z}")
    assert worst <= MOST_Z
