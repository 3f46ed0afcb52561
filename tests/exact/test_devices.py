"""The same seed gives the same draws on any number of devices, whoever adds up over them.

In float64, where the rounding of sums in another order has grown to nothing that counts after so many transitions. 37
rows are divided by none of the meshes. Warmup on several devices is compared in tests/unit/sampling/test_program.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from bayesmesh.experiment.registry import list_components, load_component
from bayesmesh.sampling.program import name_leaves

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 4, 30, 50
SEED = (np.uint32(3), np.uint32(0))

LOCAL = [name for name in list_components("model") if load_component("model", name).local_latents]
"""Models whose latents follow the rows; the published regression stands for those without."""

OPTIONS: dict[str, dict[str, Any]] = {
    "matrix_factorization": {"width": 2},
    "hmc": {"num_leapfrog_steps": 4},
    "chees": {"max_leapfrog_steps": 8},
}

MESHES = [
    *(("named", mesh) for mesh in [(1, 2), (1, 4), (1, 8), (2, 4)]),
    *(("shard_map", mesh) for mesh in [(1, 7), (2, 4)]),
]
"""Way of sharding and (chain, data)."""


@pytest.fixture(scope="module", params=[*LOCAL, "softmax_regression"])
def case(request, make_case):
    return make_case(request.param, **OPTIONS.get(request.param, {}))


@pytest.fixture(scope="module", params=["hmc", "chees"])
def program_on(request, case, make_program) -> Callable[..., Any]:
    """A function of (way of sharding, mesh) that gives the program of a kernel."""

    def make(way: str, mesh: tuple[int, int]) -> Any:
        return make_program(
            case, request.param, NUM_CHAINS, NUM_WARMUP, NUM_DRAWS, mesh, 5, None, OPTIONS[request.param], way
        )

    return make


def compiled(program: Any, phase: str) -> Any:
    return program.trace(phase).lower().compile({"xla_backend_optimization_level": 0})


def fitted(leaves: Any, program: Any) -> dict[str, np.ndarray]:
    """A checkpoint with as much padding behind the rows as the program's mesh needs: more zeros, or fewer."""
    shapes, found = program.state_shapes("sample"), {}
    for name, leaf in zip(name_leaves(shapes), jax.tree.leaves(shapes), strict=True):
        both = tuple(slice(min(n, m)) for n, m in zip(leaf.shape, leaves[name].shape, strict=True))
        found[name] = np.zeros(leaf.shape, leaf.dtype)
        found[name][both] = leaves[name][both]
    return found


def draws_from(program: Any, case: Any, leaves: Any) -> dict[str, np.ndarray]:
    """Draws and energies of as many transitions from a checkpoint."""
    state = program.put_state("sample", fitted(leaves, program))
    assert {len(v.sharding.device_set) for v in state[0].position.values()} == {program.mesh.size}
    data = program.put_data(case.rows)
    _, info, draws = compiled(program, "sample")(*SEED, data, state, np.uint32(0), np.int32(NUM_DRAWS))
    return jax.device_get({**draws, "energy": info.energy, "n_steps": info.n_steps})


@pytest.fixture(scope="module")
def checkpoint(program_on, case) -> dict[str, np.ndarray]:
    """State and tuning after warmup on one device."""
    program = program_on("named", (1, 1))
    data = program.put_data(case.rows)
    state = compiled(program, "initialise")(*SEED, data)
    state, _ = compiled(program, "warmup")(*SEED, data, state, np.uint32(0), np.int32(NUM_WARMUP))
    state = jax.device_get(compiled(program, "finish")(state))
    return dict(zip(name_leaves(state), jax.tree.leaves(state), strict=True))


@pytest.fixture(scope="module")
def alone(program_on, case, checkpoint) -> dict[str, np.ndarray]:
    """On one device."""
    found = draws_from(program_on("named", (1, 1)), case, checkpoint)
    # Chains that stand still would agree anywhere.
    assert all((np.diff(found[name], axis=0) != 0).any() for name in found if name != "n_steps")
    return found


@pytest.mark.parametrize(("way", "mesh"), MESHES)
def test_draws_do_not_depend_on_devices(program_on, case, checkpoint, alone, way, mesh) -> None:
    found = draws_from(program_on(way, mesh), case, checkpoint)
    assert found.keys() == alone.keys()
    for name, expected in alone.items():
        assert len(expected) == NUM_DRAWS
        bound = 1e-10 * max(1.0, np.abs(expected).max())
        # Behind the last row lies padding, of which more devices may need more.
        cut = found[name][tuple(slice(n) for n in expected.shape)]
        np.testing.assert_allclose(cut, expected, rtol=0, atol=bound, err_msg=name)
