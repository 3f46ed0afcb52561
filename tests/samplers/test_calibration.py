"""Simulation-based calibration of whole programs: starts, warmup and draws, with adaptation for every dataset.

tests/exact/test_joint.py calibrates one kernel of fixed tuning; here the dataset axis of `sampling.program.datasets` runs what a
user would. The defects below are of the kind that moments of a single posterior hardly show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.config.registry import load_component
from bayesmesh.operations.check.calibration import Calibration, calibrate
from bayesmesh.sampling.density.prior_draws import Simulator
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.values import GroupKey
from cases import Case, make_case
from kernel_options import kernels_of_any_target
from levels import GROUP_SIZES, groups_case
from samplers.conftest import IS_NIGHTLY
from samplers.test_densities import narrowed

ALPHA = 1e-5
"""Of the smallest p-value times their number."""

NUM_DATASETS, NUM_OF_MODELS = (640, 640) if IS_NIGHTLY else (192, 96)
"""For kernels, and for models, whose datasets take four times as long or more."""

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 300, 120

OPTIONS: dict[str, dict[str, Any]] = {
    "hmc": {"num_leapfrog_steps": 5, "initial_step_size": 0.1},
    "nuts": {"max_tree_depth": 7},
    "chees": {"max_leapfrog_steps": 32},
}
ADJUSTED = [name for name in kernels_of_any_target() if load_component("kernel", name).is_adjusted]

MODELS = {
    "gaussian": lambda: make_case("gaussian", num_rows=9),
    "softmax_regression": lambda: narrowed(make_case("softmax_regression", num_rows=12)),
    "matrix_factorization": lambda: narrowed(make_case("matrix_factorization", num_rows=6, width=1)),
    "hidden_markov": lambda: make_case("hidden_markov", num_rows=2),
    "groups": lambda: groups_case(make_case),
}

CASES = [
    *(pytest.param("gaussian", kernel, marks=pytest.mark.verify) for kernel in ADJUSTED),
    *(pytest.param(model, "chees", marks=pytest.mark.verify) for model in ("softmax_regression", "groups")),
    *(
        pytest.param(model, kernel, marks=pytest.mark.nightly)
        for model in MODELS for kernel in ("nuts", "hmc", "chees")
        if model != "gaussian" and (model, kernel) not in (("softmax_regression", "chees"), ("groups", "chees"))
    ),
]  # fmt: skip


def simulate(
    make_program: Callable[..., Any],
    case: Case,
    kernel: str,
    num_datasets: int = NUM_DATASETS,
    warmup: int = NUM_WARMUP,
) -> tuple[DatasetPrograms, Any]:
    """The programs of many datasets, and the datasets."""
    num_chains = max(NUM_CHAINS, load_component("kernel", kernel).min_chains)
    program = make_program(case, kernel, num_chains, warmup, 64, row_tile=5, kernel_options=OPTIONS.get(kernel))
    return DatasetPrograms(program, [case.spec.num_rows] * num_datasets), Simulator(program.target, case.rows).draw(
        3, num_datasets
    )


def passes(found: Calibration) -> bool:
    """The gate; NaN does not pass it."""
    return found.num_ranked >= 19 and found.smallest >= ALPHA


@pytest.mark.parametrize(("model", "kernel"), CASES)
def test_posteriors_are_calibrated(model: str, kernel: str, make_program, record) -> None:
    num_datasets = NUM_DATASETS if model == "gaussian" else NUM_OF_MODELS
    programs, simulated = simulate(make_program, MODELS[model](), kernel, num_datasets)
    # A walk needs longer for as many independent draws.
    found = calibrate(programs, simulated, NUM_DRAWS * (4 if kernel == "random_walk" else 1), seed=5)
    record(f"smallest of {len(found.p_values)} p {found.smallest:.2g} among {found.num_ranked} draws", f"{ALPHA}")
    assert passes(found), found


@pytest.mark.verify
def test_calibration_sees_a_posterior_of_other_data(make_program, record) -> None:
    """Few datasets are enough for a gross defect: every posterior is that of its neighbour's data."""
    programs, simulated = simulate(make_program, MODELS["gaussian"](), "hmc", num_datasets=64, warmup=60)
    right = calibrate(programs, simulated, 64, seed=5)
    turned = simulated._replace(rows={k: np.roll(v, 1, axis=0) for k, v in simulated.rows.items()})
    wrong = calibrate(programs, turned, 64, seed=5)
    record(f"p {right.smallest:.2g}, with other data {wrong.smallest:.1g}", f"{ALPHA}")
    assert passes(right), right
    assert not passes(wrong), wrong


def test_what_is_not_a_number_is_not_calibrated() -> None:
    assert not passes(Calibration({"x": 0.5, "log likelihood": float("nan")}, 100))
    assert not passes(Calibration({"x": 0.5}, 10)), "too few independent draws are not passed"


# -- the dataset axis --------------------------------------------------------------------------------------------------


@pytest.mark.verify
def test_a_dataset_has_the_chains_that_it_has_alone(make_program) -> None:
    """Its starts, its adaptation and its draws; and those of another dataset have no part in them."""
    case = groups_case(make_case)
    programs, simulated = simulate(make_program, case, "hmc", num_datasets=3, warmup=20)
    rows = {k: v.reshape(-1, *v.shape[2:]) for k, v in simulated.rows.items()}
    together = programs.run(programs.arguments(GroupKey(7, 0)), programs.put_data(rows), 6)
    assert {k: v.shape[:3] for k, v in together.latents.items()} == dict.fromkeys(together.latents, (3, 6, NUM_CHAINS))
    assert together.latents["scales"].shape[-1] == len(GROUP_SIZES), "padding stays on the devices"
    alone = DatasetPrograms(programs.program, [case.spec.num_rows])
    last = {k: v[2] for k, v in simulated.rows.items()}
    expected = alone.run(alone.arguments(GroupKey(7, 2 * NUM_CHAINS)), alone.put_data(last), 6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[2:], b, rtol=1e-8, atol=1e-10), together, expected)
    steps = together.statistics["step_size"]
    assert len(np.unique(steps[:, 0])) == 3, "every dataset has a step size of its own"
    np.testing.assert_array_equal(steps, np.broadcast_to(steps[:, :1], steps.shape), "which stays after warmup")
