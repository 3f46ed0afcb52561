"""Warmup finds the units whose scale is too wide, and a draw counts what became of each of its trajectories."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Density, Position, Target
from bayesmesh.kernels.targets import UnitDensity, UnitScale
from bayesmesh.kernels.unit_hmc import Options, UnitHmc, UnitTuning

CHAINS, UNITS, WARMUP = 2, 6, 60
PRECISIONS = jnp.asarray([1.0, 1.0, 400.0, 1.0, 1.0, 1.0])
"""Of independent normals in two coordinates. Their information says 1 of each, which is wrong of the third; the last is padding."""


class Normals(Target):
    """Both the target, with its units, and the units of its only group, at positions (chain, unit * 2)."""

    num_groups = 1
    mask = Position(None, None)

    def __init__(self, start: Any = None) -> None:
        self.start = start

    @property
    def units(self) -> Normals:
        return self

    def log_density(self, position: Position) -> Density:
        found = self.density(position.shared.reshape(-1, UNITS, 2))
        return Density(found.log_prior.sum(axis=1), found.log_likelihood.sum(axis=1), self.place(found.gradient))

    def given(self, position: Position, group: int) -> Normals:
        return Normals(position.shared.reshape(-1, UNITS, 2))

    def density(self, at: jax.Array) -> UnitDensity:
        value = -0.5 * PRECISIONS * jnp.square(at).sum(axis=2)
        return UnitDensity(jnp.zeros_like(value), value, -PRECISIONS[:, None] * at)

    def gradient(self, at: jax.Array) -> jax.Array:
        return self.density(at).gradient

    def scale(self, information: Position) -> UnitScale:
        stretch = information.shared.reshape(UNITS, 2) ** -0.5 * (jnp.arange(UNITS) < UNITS - 1)[:, None]
        every = jnp.broadcast_to(stretch, (CHAINS, UNITS, 2))
        return UnitScale(jnp.broadcast_to(jnp.eye(2), (CHAINS, 2, 2)), every)

    def place(self, at: jax.Array) -> Position:
        return Position(at.reshape(len(at), -1), None)

    def information(self, position: Position) -> Position:
        return jax.tree.map(jnp.ones_like, position)

    def add(self, to: Position, group: int, values: jax.Array) -> Position:
        return Position(to.shared + jnp.repeat(values, 2, axis=1), None)

    def redraw(self, key: jax.Array, position: Position) -> tuple[Position, jax.Array]:
        return position, jnp.zeros(CHAINS)


KERNEL = UnitHmc(Options(rounds=2), WARMUP)


def keys_at(iteration: Any) -> jax.Array:
    return jax.vmap(lambda c: jax.random.fold_in(jax.random.key(c), iteration))(jnp.arange(CHAINS))


FAST = {"xla_backend_optimization_level": 0}
"""Optimising these programs takes longer than running them."""


@functools.cache
def programs() -> Any:
    """A step with the given tuning; and warmup, which returns the states before and after it and both adaptations."""
    target = Normals()

    def step(state: Any, iteration: Any, tuning: UnitTuning) -> Any:
        return KERNEL.step(keys_at(iteration), state, target, tuning)

    def warm_up() -> Any:
        def one(i: jax.Array, carry: Any) -> Any:
            state, adaptation = carry
            after, info = step(state, i, KERNEL.tuning(adaptation, True))
            return after, KERNEL.adapt(adaptation, state, after, info, target)

        begin = KERNEL.init(keys_at(0), Position(jnp.full((CHAINS, UNITS * 2), 0.05), None), target)
        adaptation = KERNEL.init_adaptation(begin, target)
        return (begin, adaptation), jax.lax.fori_loop(0, WARMUP, one, (begin, adaptation))

    return jax.jit(step, compiler_options=FAST), jax.jit(warm_up, compiler_options=FAST)


@functools.cache
def warmed_up() -> Any:
    return programs()[1]()


def test_warmup_narrows_the_units_that_accept_seldom_and_no_others() -> None:
    step, (_, (state, adaptation)) = programs()[0], warmed_up()
    tuning = KERNEL.tuning(adaptation, False)
    inflation = np.exp(adaptation.log_inflation.shared[::2])
    np.testing.assert_array_equal(adaptation.log_inflation.shared[::2], adaptation.log_inflation.shared[1::2])
    np.testing.assert_array_equal(inflation[[0, 1, 3, 4, 5]], 1)
    assert 20 < inflation[2] < 4_000
    np.testing.assert_allclose(tuning.information.shared[::2], inflation, rtol=1e-12)
    accepted = []
    for i in range(40):
        state, info = step(state, WARMUP + i, tuning)
        accepted.append(np.asarray(info.unit_acceptance.shared[:, 4]).mean())
        assert not info.divergent_share.any()
    assert np.mean(accepted) > 0.5


def test_draws_use_a_little_less_than_the_step_size_of_the_search() -> None:
    (_, adaptation), _ = warmed_up()
    searched, used = (float(KERNEL.tuning(adaptation, is_on).step_size[0]) for is_on in (True, False))
    assert 0.9 * searched < used < searched


def test_a_draw_states_the_share_of_its_trajectories_that_diverged() -> None:
    """Of five units and padding, the third is a hundred times too wide; the others are right."""
    step, ((begin, _), _) = programs()[0], warmed_up()
    tuning = UnitTuning(jnp.asarray([0.5]), Position(jnp.ones(UNITS * 2), None))
    wide = tuning.information.shared.at[4:6].set(1e-4)
    after, info = step(begin, 0, tuning._replace(information=Position(wide, None)))
    np.testing.assert_array_equal(info.divergent_share, 1 / 5)
    assert info.diverging.all()
    assert info.accepted.all()
    np.testing.assert_array_equal(after.position.shared[:, 4:6], begin.position.shared[:, 4:6])
    assert not (after.position.shared[:, :4] == begin.position.shared[:, :4]).any()
    np.testing.assert_array_equal(info.unit_acceptance.shared[:, 4:6], 0)
    np.testing.assert_array_equal(info.unit_acceptance.shared[:, 10:], 1)
    of_units = info.unit_acceptance.shared[:, :10:2]
    np.testing.assert_allclose(info.acceptance_rate, of_units.mean(axis=1), rtol=1e-12)


def test_a_unit_that_begins_where_there_is_no_density_makes_its_chain_a_lost_one() -> None:
    """It stays, as a chain of any kernel does, and the log density of its chain alone says so; the others are tuned without it."""
    step, ((begin, adaptation), _) = programs()[0], warmed_up()
    far = begin.position.shared.at[0, 2].set(1e200)
    lost = begin._replace(position=Position(far, None), log_likelihood=begin.log_likelihood.at[0].set(-jnp.inf))
    after, info = step(lost, 0, KERNEL.tuning(adaptation, True))
    assert after.position.shared[0, 2] == 1e200
    np.testing.assert_array_equal(np.isfinite(info.lp), [False, True])
    adapted = KERNEL.adapt(adaptation, lost, after, info, Normals())
    alone = np.clip(2.0 * (0.8 * 0.85 - info.unit_acceptance.shared[1]), 0, None)
    np.testing.assert_allclose(adapted.log_inflation.shared, alone, rtol=1e-12)
