"""What is particular to fixed-length HMC."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, MOST = 8, 500
SD = jnp.asarray(np.geomspace(0.01, 100, 6))
TARGET = FunctionTarget(lambda q: -0.5 * jnp.sum((q / SD) ** 2))


@pytest.fixture(scope="module")
def programs() -> dict[str, Any]:
    """Metric -> compiled warmup; what else differs is an argument."""
    return {name: jax.jit(lambda *a, name=name: run(name, *a)) for name in ("identity", "diagonal")}


def run(metric: str, numbers: dict[str, Any], num_warmup: Any, position: Position) -> Any:
    kernel = Hmc(Options(metric=metric), 0).with_arguments(numbers, num_warmup)

    def keys(i: Any) -> jax.Array:
        return jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)

    def step(i: jax.Array, carry: Any) -> Any:
        state, adaptation, infos = carry
        is_adapting = i < kernel.num_adaptive
        after, info = kernel.step(keys(i), state, TARGET, kernel.tuning(adaptation, is_adapting))
        adaptation = jax.lax.cond(
            is_adapting, lambda: kernel.adapt(adaptation, state, after, info, TARGET), lambda: adaptation
        )
        made = {"n_steps": info.n_steps, "step_size": info.step_size, "acceptance_rate": info.acceptance_rate}
        return after, adaptation, jax.tree.map(lambda buffer, x: buffer.at[i].set(x), infos, made)

    state = kernel.init(keys(MOST), position, TARGET)
    infos = {
        "n_steps": jnp.zeros(MOST, jnp.int32),
        "step_size": jnp.zeros(MOST),
        "acceptance_rate": jnp.zeros((MOST, NUM_CHAINS)),
    }
    begin = (state, kernel.init_adaptation(state, TARGET), infos)
    _, adaptation, infos = jax.lax.fori_loop(0, num_warmup, step, begin)
    return kernel.tuning(adaptation, False), infos


@pytest.fixture
def warm_up(programs):
    """A function of (number of iterations, metric, options) that gives tuning and infos of warmup."""

    def go(num_warmup: int, metric: str = "identity", **options: Any) -> Any:
        numbers = {k: jnp.asarray(v) for k, v in (Hmc(Options(), 0).numeric_options | options).items()}
        start = Position(30.0 + jax.random.normal(jax.random.key(1), (NUM_CHAINS, 6)), None)
        tuning, infos = programs[metric](numbers, jnp.asarray(num_warmup, jnp.int32), start)
        return tuning, {k: np.asarray(v[:num_warmup]) for k, v in infos.items()}

    return go


def test_every_trajectory_has_its_length(warm_up) -> None:
    _, infos = warm_up(20, num_leapfrog_steps=7)
    assert (infos["n_steps"] == 7).all()


def test_the_step_size_stays_after_its_part_of_warmup(warm_up) -> None:
    tuning, infos = warm_up(100, adaptation_fraction=0.4)
    assert len(np.unique(infos["step_size"][:40])) == 40
    assert len(np.unique(infos["step_size"][40:])) == 1
    np.testing.assert_allclose(infos["step_size"][-1], tuning.step_size, rtol=1e-14)


@pytest.mark.parametrize("fraction", [0.02, 0.25, 0.5, 1.0])
def test_scales_are_found_within_the_adapted_part(fraction: float, warm_up) -> None:
    """The last window closes before adaptation ends, and the step size has time to follow the last scale."""
    num_adaptive = Hmc(Options(adaptation_fraction=fraction), 400).num_adaptive
    assert num_adaptive == 400 * fraction
    tuning, infos = warm_up(400, "diagonal", adaptation_fraction=fraction, num_leapfrog_steps=5)
    assert (tuning.metric.shared != 1).all()
    if fraction >= 0.25:
        np.testing.assert_allclose(tuning.metric.shared, SD, rtol=0.01)
        np.testing.assert_allclose(infos["acceptance_rate"][-50:].mean(), 0.75, atol=0.2)
    after = infos["step_size"][num_adaptive:]
    np.testing.assert_allclose(after, np.full(after.shape, tuning.step_size), rtol=1e-14)


@pytest.mark.parametrize("num_warmup", [0, 1, 7, 99, 1000])
@pytest.mark.parametrize("fraction", [0.02, 0.3, 0.5, 1.0])
def test_the_adapted_part_is_as_long_as_an_argument_as_in_python(num_warmup: int, fraction: float) -> None:
    kernel = Hmc(Options(adaptation_fraction=fraction), num_warmup)
    traced = Hmc(Options(), 0).with_arguments(
        {"adaptation_fraction": jnp.asarray(fraction)}, jnp.asarray(num_warmup, jnp.int32)
    )
    assert int(traced.num_adaptive) == kernel.num_adaptive


def planned(length: float, step_size: float, iteration: int = 0, **options: Any) -> tuple[int, float]:
    kernel = Hmc(Options(trajectory_length=length, **options), 0)
    state = kernel.init(jax.random.split(jax.random.key(0), 2), Position(jnp.ones((2, 6)), None), TARGET)
    adaptation = kernel.init_adaptation(state, TARGET)
    tuning = kernel.tuning(adaptation, True)._replace(step_size=jnp.asarray(step_size))
    _, info = kernel.step(
        jax.random.split(jax.random.key(0), 2),
        state._replace(num_steps=jnp.asarray(iteration, jnp.int32)),
        TARGET,
        tuning,
    )
    return int(info.n_steps), float(info.step_size)


@pytest.mark.parametrize(
    ("step_size", "num_steps", "used"), [(0.5, 4, 0.5), (0.6, 4, 0.5), (0.7, 3, 2 / 3), (5.0, 1, 2.0), (0.01, 9, 0.01)]
)
def test_a_trajectory_of_a_given_length_takes_the_steps_it_needs(step_size, num_steps, used) -> None:
    """They are shortened to fit, and never lengthened when there are as many as may be."""
    assert planned(2.0, step_size, num_leapfrog_steps=9) == (num_steps, pytest.approx(used))


def test_jitter_moves_the_step_size_about_its_value() -> None:
    used = [planned(2.0, 0.5, i, jitter=0.3)[1] for i in range(8)]
    assert len(set(used)) == 8
    assert 0.35 < min(used) < 0.4
    assert 0.6 < max(used) < 0.65
