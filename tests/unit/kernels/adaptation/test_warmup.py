"""The common warmup: what happens at the end of a window, and what is left after warmup."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.lost_chains import near_others
from bayesmesh.kernels.adaptation.step_size import averaged_step_size
from bayesmesh.kernels.adaptation.warmup import is_window_end, window_ends
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, NUM_WARMUP = 6, 40
SD = jnp.asarray([0.1, 10.0])
TARGET = FunctionTarget(lambda q: -0.5 * jnp.sum((q / SD) ** 2) - 0.25 * jnp.sum((q / SD) ** 4))
"""Of a normal target every window would have the same estimate."""
ENDS = window_ends(NUM_WARMUP).tolist()


def keys(i: Any) -> jax.Array:
    return jax.random.split(jax.random.fold_in(jax.random.key(0), i), NUM_CHAINS)


def history(metric: str) -> tuple[Hmc, list[Any], list[Any]]:
    """Kernel, and adaptation and state before and after every iteration of a warmup."""
    kernel = Hmc(Options(metric=metric, num_leapfrog_steps=3, initial_step_size=0.1), NUM_WARMUP)

    @jax.jit
    def run(position: Position) -> Any:
        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            after, info = kernel.step(keys(i), state, TARGET, kernel.tuning(adaptation, True))
            return (after, kernel.adapt(adaptation, state, after, info, TARGET)), carry

        state = kernel.init(keys(NUM_WARMUP), position, TARGET)
        begin = (state, kernel.init_adaptation(state, TARGET))
        last, before = jax.lax.scan(step, begin, jnp.arange(NUM_WARMUP))
        return jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)

    states, adaptations = run(Position(SD * jax.random.normal(jax.random.key(1), (NUM_CHAINS, 2)), None))
    return kernel, *(
        [jax.tree.map(lambda x, i=i: x[i], t) for i in range(NUM_WARMUP + 1)] for t in (adaptations, states)
    )


@pytest.fixture(scope="module")
def diagonal():
    return history("diagonal")


def test_the_metric_is_replaced_where_a_window_closes_and_nowhere_else(diagonal) -> None:
    _, adaptations, _ = diagonal
    scales = [np.asarray(a.metric.shared) for a in adaptations]
    changed = [i for i in range(1, NUM_WARMUP + 1) if (scales[i] != scales[i - 1]).any()]
    assert changed == [end for end in ENDS if end >= 2]


class Failing(DiagonalMetric):
    """A metric whose estimate is not finite in one coordinate, as a factorisation that fails."""

    lost: ClassVar[float] = jnp.nan

    def estimate(self, estimate: Any) -> Position:
        scale = super().estimate(estimate)
        return scale._replace(shared=scale.shared.at[0].set(self.lost))


@pytest.mark.parametrize("lost", [jnp.nan, jnp.inf, 3.0])
def test_an_estimate_that_is_not_finite_leaves_the_metric_as_it_was(lost, monkeypatch) -> None:
    monkeypatch.setattr(Failing, "lost", lost)
    kernel = Hmc(Options(metric="diagonal", num_leapfrog_steps=3), NUM_WARMUP)
    kernel.metric = Failing(kernel.options)
    state = kernel.init(keys(0), Position(jnp.ones((NUM_CHAINS, 2)), None), TARGET)
    before = kernel.init_adaptation(state, TARGET)
    info = SimpleNamespace(acceptance_rate=jnp.ones(NUM_CHAINS), lp=jnp.zeros(NUM_CHAINS))
    closing = state._replace(num_steps=jnp.asarray(ENDS[1], jnp.int32))
    after = kernel.adapt(before, state, closing, info, TARGET)
    assert after.metric.shared[0] == (lost if np.isfinite(lost) else before.metric.shared[0])
    assert np.isfinite(after.metric.shared).all()
    assert after.estimate.count == 0, "the window is over all the same"


def test_a_window_has_its_own_points(diagonal) -> None:
    """The estimate counts every chain of every iteration since the window began, and begins anew."""
    _, adaptations, _ = diagonal
    for i, adaptation in enumerate(adaptations):
        begun = max([0, *(end for end in ENDS if 2 <= end <= i)])
        assert adaptation.estimate.count == NUM_CHAINS * (i - begun)


def test_after_a_window_the_step_size_is_searched_from_where_it_is(diagonal) -> None:
    _, adaptations, _ = diagonal
    for end in ENDS[1:]:
        after = adaptations[end].step_size
        assert not after.count.any()
        assert not after.error_sum.any()
        np.testing.assert_allclose(after.log_step, after.log_step_average)
        np.testing.assert_allclose(after.shrinkage_point, after.log_step + np.log(2), rtol=1e-12)
        np.testing.assert_allclose(after.log_step, adaptations[end - 1].step_size.log_step, atol=3)
    assert (adaptations[-1].step_size.count == NUM_WARMUP - ENDS[-1]).all()


def test_the_first_metric_is_that_of_the_gradients_where_chains_start(diagonal) -> None:
    kernel, adaptations, states = diagonal
    expected = kernel.metric.init(states[0].gradient, TARGET.mask)
    np.testing.assert_allclose(adaptations[0].metric.shared, expected.shared, rtol=1e-12)


def test_the_identity_adapts_the_step_size_alone() -> None:
    _, adaptations, _ = history("identity")
    last = adaptations[-1]
    assert (last.metric, last.estimate, last.extra) == ((), (), ())
    assert (last.step_size.count == NUM_WARMUP).all(), "no window interrupts the search"


def test_the_average_is_what_is_left(diagonal) -> None:
    kernel, adaptations, _ = diagonal
    last = adaptations[-1]
    while_adapting, afterwards = kernel.tuning(last, True), kernel.tuning(last, False)
    np.testing.assert_allclose(while_adapting.step_size, jnp.exp(last.step_size.log_step), rtol=1e-15)
    np.testing.assert_allclose(afterwards.step_size, averaged_step_size(last.step_size), rtol=1e-15)
    assert (while_adapting.step_size != afterwards.step_size).all()
    for tuning in (while_adapting, afterwards):
        np.testing.assert_array_equal(tuning.metric.shared, last.metric.shared)


def test_chains_that_are_lost_have_no_say_in_the_step_size() -> None:
    kernel = Hmc(Options(), 10)
    state = kernel.init(keys(0), Position(jnp.zeros((NUM_CHAINS, 2)), None), TARGET)
    _, info = kernel.step(keys(0), state, TARGET, kernel.tuning(kernel.init_adaptation(state, TARGET), True))
    rate = jnp.full(NUM_CHAINS, 0.9).at[0].set(0.0)
    for lost in (jnp.nan, -1e9):
        counts = near_others(info.lp.at[0].set(lost))
        found = kernel.acceptance_statistic(info._replace(acceptance_rate=rate), counts)
        np.testing.assert_allclose(found, 0.9, rtol=1e-12)


def closing(num_warmup: int) -> list[int]:
    """Iteration counts at which a window closes."""
    counts = jnp.arange(num_warmup + 10, dtype=jnp.int32)
    return counts[jax.vmap(lambda count: is_window_end(count, num_warmup))(counts)].tolist()


@pytest.mark.parametrize("num_warmup", [0, 1, 2, 5, 20, 100, 999])
def test_windows_grow_and_leave_the_end_to_the_step_size(num_warmup: int) -> None:
    ends = closing(num_warmup)
    assert all(2 <= end <= num_warmup for end in ends)
    if num_warmup >= 20:
        assert len(ends) >= 5
        assert ends[-1] <= 0.85 * num_warmup
        widths = [b - a for a, b in zip((0, *ends), ends, strict=False)]
        assert widths == sorted(widths)


@pytest.mark.parametrize("num_warmup", [0, 1, 6, 30])
def test_a_window_closes_at_each_end_and_nowhere_else(num_warmup: int) -> None:
    """A window of one iteration would say nothing about a spread, so an end below 2 closes none."""
    ends = window_ends(num_warmup).tolist()
    assert ends == sorted(ends)
    assert closing(num_warmup) == sorted({end for end in ends if end >= 2})


def test_the_length_of_warmup_may_be_an_argument() -> None:
    ends = jax.jit(window_ends)
    for num_warmup in (0, 7, 50, 999):
        assert ends(jnp.asarray(num_warmup, jnp.int32)).tolist() == window_ends(num_warmup).tolist()
