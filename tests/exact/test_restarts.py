"""A run in which a lost chain continues from the position of another one is the same run on any devices, and cut anywhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from levels import Levels

NUM_WARMUP, NUM_DRAWS = 100, 5
"""The shortest warmup with a window from which chains are judged."""

SEED, RESTARTS = 97, [[54, 2], [54, 3]]
"""Iteration and chain: two devices share the chains so that all places that are taken lie on the other one."""


class TwoModes(Levels):
    """A narrow mode where the centre is near 0, and one of negligible mass where both its coordinates are near 2."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        del rows
        off = 30 * (latents["centre"] - jnp.asarray([0.0, 2.0])[:, None, None]) + latents["levels"]
        return jax.nn.logsumexp(-0.5 * (off**2).sum(axis=2) - jnp.asarray([[0.0], [20.0]]), axis=0)


@pytest.fixture(scope="module")
def build_on(build, make_case) -> Any:
    """Return a function of a mesh: its programs. Two devices for three rows have an entry of padding."""
    case = dataclasses.replace(make_case("gaussian", num_rows=3), name="two_modes", model_class=TwoModes)
    return lambda *mesh: build(
        case, "nuts", num_warmup=NUM_WARMUP, mesh=mesh, is_optimised=False, max_tree_depth=3, metric="diagonal"
    )


@pytest.fixture(scope="module")
def alone(build_on) -> Any:
    return build_on(1, 1).run(NUM_DRAWS, SEED)


def test_chains_restart(alone) -> None:
    assert np.argwhere(alone.warmup_statistics["restarted"]).tolist() == RESTARTS


@pytest.mark.parametrize("mesh", [(2, 1), (1, 2)])
def test_a_restart_depends_neither_on_devices_nor_on_cuts(build_on, alone, mesh) -> None:
    built = build_on(*mesh)
    whole = built.run(NUM_DRAWS, SEED)
    for found, expected in (
        (whole.warmup_statistics, alone.warmup_statistics),
        (whole.statistics, alone.statistics),
        (whole.draws, alone.draws),
    ):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-8), found, expected)
    # From a checkpoint before every iteration, and so from those between which the chain moves.
    cut = built.run(NUM_DRAWS, SEED, segment=1, is_through_host=True)
    jax.tree.map(np.testing.assert_array_equal, vars(cut), vars(whole))
