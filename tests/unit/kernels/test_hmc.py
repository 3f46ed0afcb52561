"""What is particular to fixed-length HMC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.hmc import Hmc, Options

NUM_CHAINS = 8
SD = jnp.asarray(np.geomspace(0.01, 100, 6))


def log_density(position: Position) -> Density:
    value = -0.5 * jnp.sum((position["x"] / SD) ** 2, axis=1)
    return Density(0 * value, value, {"x": -position["x"] / SD**2})


def warm_up(num_warmup: int, **options: Any) -> tuple[Hmc, Any, Any, Any]:
    """Kernel, state, tuning and the infos of warmup."""
    kernel = Hmc(Options(**options), num_warmup)

    @jax.jit
    def run(position: Position) -> Any:
        begin = kernel.warmup_init(kernel.init(position, log_density), {"x": jnp.ones(6)})

        def step(state: Any, i: jax.Array) -> Any:
            keys = jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)
            return kernel.warmup_step(keys, state, log_density)

        state, info = jax.lax.scan(step, begin, jnp.arange(num_warmup))
        return *kernel.warmup_finish(state), info

    return kernel, *run({"x": 30.0 + jax.random.normal(jax.random.key(1), (NUM_CHAINS, 6))})


def test_every_trajectory_has_its_length() -> None:
    _, _, _, info = warm_up(20, num_leapfrog_steps=7)
    assert (info.n_steps == 7).all()


def test_the_diagonal_preconditioner_finds_the_scales() -> None:
    _, _, tuning, info = warm_up(500, preconditioner="diagonal", num_leapfrog_steps=5)
    np.testing.assert_allclose(tuning.scale["x"], SD, rtol=1e-3)
    assert 0.5 < tuning.step_size < 2
    np.testing.assert_allclose(info.acceptance_rate[-100:].mean(), 0.75, atol=0.15)


def test_without_it_the_scale_stays_one() -> None:
    _, _, tuning, _ = warm_up(50)
    assert (tuning.scale["x"] == 1).all()


def test_the_step_size_stays_after_its_part_of_warmup() -> None:
    _, _, tuning, info = warm_up(100, adaptation_fraction=0.4)
    assert len(np.unique(info.step_size[:40])) == 40
    assert len(np.unique(info.step_size[40:])) == 1
    np.testing.assert_allclose(info.step_size[-1], tuning.step_size, rtol=1e-14)


@pytest.mark.parametrize("fraction", [0.02, 0.25, 0.5, 1.0])
def test_scales_are_found_within_the_adapted_part(fraction: float) -> None:
    """The last window closes before adaptation ends, and the step size has time to follow the last scale."""
    kernel, _, tuning, info = warm_up(
        400, preconditioner="diagonal", adaptation_fraction=fraction, num_leapfrog_steps=5
    )
    assert kernel.num_adaptive == 400 * fraction
    assert (tuning.scale["x"] != 1).all()
    if fraction >= 0.25:
        np.testing.assert_allclose(tuning.scale["x"], SD, rtol=0.01)
        np.testing.assert_allclose(info.acceptance_rate[-50:].mean(), 0.75, atol=0.2)
    after = info.step_size[kernel.num_adaptive :]
    np.testing.assert_allclose(after, np.full(after.shape, tuning.step_size), rtol=1e-14)
