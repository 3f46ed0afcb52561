"""The same seed gives the same draws on any number of devices, whoever adds up over them.

In float64, where the rounding of sums in another order has grown to nothing that counts after so many transitions. 37
rows are divided by none of the meshes. Warmup on several devices is compared in tests/unit/sampling/program/test_chain_group.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.config.registry import list_components, load_component
from bayesmesh.sampling.program.chain_group import name_leaves
from bayesmesh.sampling.program.values import GroupKey
from programs import checkpoint

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 30, 50
KEY = GroupKey(3, 0)

LOCAL = [name for name in list_components("model") if load_component("model", name).local_latents]
"""Models whose latents follow the rows."""

OPTIONS: dict[str, dict[str, Any]] = {
    "matrix_factorization": {"width": 2},
    "rating_factorization": {"width": 2},
    "hmc": {"num_leapfrog_steps": 4},
    "chees": {"max_leapfrog_steps": 8},
}

MESHES = {"hmc": (1, 2), "chees": (1, 8)}
"""Kernel -> few devices, or many."""

CASES = [
    # Groups of rows lie alike for every kernel.
    *(
        (m, k, "named", mesh)
        for m in LOCAL
        for k, mesh in MESHES.items()
        if (m, k) != ("rating_factorization", "chees")
    ),
    *(
        pytest.param(model, "hmc", "shard_map", (2, 4), marks=[pytest.mark.nightly] * (model == "rating_factorization"))
        for model in LOCAL
    ),
    # The published regression stands for models without latents that follow the rows.
    ("softmax_regression", "chees", "named", (2, 4)),
    ("softmax_regression", "chees", "shard_map", (1, 7)),
]
"""Model, kernel, way of sharding and (chain, data)."""


@pytest.fixture(scope="module")
def case_of(make_case) -> Callable[[str], Any]:
    """A function of the model's name that gives its case."""
    return functools.cache(lambda model: make_case(model, **OPTIONS.get(model, {})))


@pytest.fixture(scope="module")
def program_on(case_of, make_program) -> Callable[..., Any]:
    """A function of (model, kernel, way of sharding, mesh) that gives the program."""

    def make(model: str, kernel: str, way: str = "named", mesh: tuple[int, int] = (1, 1)) -> Any:
        options = OPTIONS[kernel]
        return make_program(case_of(model), kernel, NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, mesh, 5, None, options, way)

    return make


def compiled(program: Any, name: str) -> Any:
    return program.trace(name).lower().compile()


def fitted(leaves: Any, program: Any) -> dict[str, np.ndarray]:
    """A checkpoint with as much padding behind the rows as the program's mesh needs: more zeros, or fewer."""
    shapes, found = program.state_shapes, {}
    for name, leaf in zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True):
        both = tuple(slice(min(n, m)) for n, m in zip(leaf.shape, leaves[name].shape, strict=True))
        found[name] = np.zeros(leaf.shape, leaf.dtype)
        found[name][both] = leaves[name][both]
    return found


def draws_from(program: Any, case: Any, leaves: Any, segment: Any) -> dict[str, np.ndarray]:
    """Draws and energies of as many transitions from a checkpoint."""
    state = program.state_to_device(fitted(leaves, program))
    assert {len(v.sharding.device_set) for v in jax.tree.leaves(state.kernel.position)} == {program.mesh.size}
    data = program.put_data(case.rows)
    arguments = program.arguments(KEY)
    _, statistics, draws = segment(arguments, data, state, np.uint32(NUM_WARMUP), np.int32(NUM_DRAWS))
    kept = program.statistics_to_host(statistics, NUM_DRAWS)
    return {**program.draws_to_host(draws, NUM_DRAWS), **{name: kept[name] for name in ("energy", "n_steps")}}


@pytest.fixture(scope="module")
def alone(program_on, case_of) -> Callable[[str, str], Any]:
    """A function of (model, kernel) that gives the state after warmup on one device, and the draws from there."""

    @functools.cache
    def run(model: str, kernel: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        program = program_on(model, kernel)
        data, arguments = program.put_data(case_of(model).rows), program.arguments(KEY)
        state, _ = compiled(program, "initialise")(arguments, data)
        segment = compiled(program, "segment")
        state, *_ = segment(arguments, data, state, np.uint32(0), np.int32(NUM_WARMUP))
        leaves = checkpoint(state)
        found = draws_from(program, case_of(model), leaves, segment)
        # Chains that stand still would agree anywhere.
        assert all((np.diff(found[name], axis=0) != 0).any() for name in found if name != "n_steps")
        return leaves, found

    return run


@pytest.mark.parametrize(("model", "kernel", "way", "mesh"), CASES)
def test_draws_do_not_depend_on_devices(program_on, case_of, alone, model, kernel, way, mesh) -> None:
    leaves, expected_draws = alone(model, kernel)
    program = program_on(model, kernel, way, mesh)
    found = draws_from(program, case_of(model), leaves, compiled(program, "segment"))
    assert found.keys() == expected_draws.keys()
    for name, expected in expected_draws.items():
        assert len(expected) == NUM_DRAWS
        bound = 1e-10 * max(1.0, np.abs(expected).max())
        assert found[name].shape == expected.shape, "padding stays on the devices"
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=bound, err_msg=name)
