"""The leapfrog integrator: one step by hand, reversibility, order, volume; the bookkeeping of a trajectory."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.hamiltonian.trajectory import batch_dot, init_state, move, run_trajectory

NUM_CHAINS = 5


def quartic(position: Position) -> Density:
    """A coupled, non-quadratic potential of a (2,) and b ()."""

    def of_chain(q: Position) -> jax.Array:
        a, b = q["a"], q["b"]
        return -(0.5 * a[0] ** 2 + 0.1 * a[1] ** 4 + 0.5 * a[1] ** 2 + 0.5 * (b - 0.3 * a[0] * a[1]) ** 2)

    value, gradient = jax.vmap(jax.value_and_grad(of_chain))(position)
    return Density(0.3 * value.astype(jnp.float64), 0.7 * value.astype(jnp.float64), gradient)


def draw(seed: int, dtype: str = "float64", num_chains: int = NUM_CHAINS) -> Position:
    one, two = jax.random.split(jax.random.key(seed))
    return {"a": jax.random.normal(one, (num_chains, 2), dtype), "b": jax.random.normal(two, (num_chains,), dtype)}


def scale(dtype: str = "float64") -> Position:
    return {"a": jnp.asarray([0.7, 1.3], dtype), "b": jnp.asarray(0.9, dtype)}


@jax.jit
def go(position: Position, momentum: Position, step_size: float, num_steps: int):
    """End point and its momentum."""
    dtype = position["b"].dtype
    state = init_state(position, quartic)
    return move(state, momentum, scale(dtype), jnp.asarray(step_size), jnp.asarray(num_steps), quartic)


def energy(state, momentum: Position) -> jax.Array:
    return 0.5 * batch_dot(momentum, momentum) - state.log_prior - state.log_likelihood


def test_one_step_is_the_one_worked_out_by_hand() -> None:
    """Standard normal, scale 2, step 0.1, from q = 1, p = 0.5: p - 0.1, q + 0.2 p, p - 0.1 q."""

    def normal(position: Position) -> Density:
        value = -0.5 * position["q"] ** 2
        return Density(jnp.zeros_like(value), value, {"q": -position["q"]})

    state = init_state({"q": jnp.asarray([1.0])}, normal)
    end, momentum = move(
        state, {"q": jnp.asarray([0.5])}, {"q": jnp.asarray(2.0)}, jnp.asarray(0.1), jnp.asarray(1), normal
    )
    np.testing.assert_allclose(end.position["q"], 1 + 0.2 * 0.4, rtol=1e-15)
    np.testing.assert_allclose(momentum["q"], 0.4 - 0.1 * 1.08, rtol=1e-15)
    np.testing.assert_allclose(end.log_likelihood, -0.5 * 1.08**2, rtol=1e-15)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
def test_a_trajectory_runs_back_to_its_start(dtype: str, tolerance: float) -> None:
    position = draw(1, dtype)
    end, momentum = go(position, draw(2, dtype), 0.1, 40)
    back, _ = go(end.position, jax.tree.map(jnp.negative, momentum), 0.1, 40)
    assert jnp.abs(end.position["a"] - position["a"]).max() > 0.5
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=tolerance), back.position, position)


def test_the_energy_error_is_of_second_order() -> None:
    position, momentum = draw(3), draw(4)
    begin = energy(init_state(position, quartic), momentum)
    errors = [np.abs(energy(*go(position, momentum, e, n)) - begin) for e, n in ((0.1, 10), (0.05, 20), (0.025, 40))]
    for coarse, fine in itertools.pairwise(errors):
        np.testing.assert_allclose(coarse.sum() / fine.sum(), 4.0, rtol=0.2)


def test_volume_is_preserved() -> None:
    def flow(flat: jax.Array) -> jax.Array:
        position, momentum = ({"a": x[None, :2], "b": x[2:3]} for x in (flat[:3], flat[3:]))
        end, p = go(position, momentum, 0.2, 7)
        return jnp.concatenate([x.ravel() for x in (end.position["a"], end.position["b"], p["a"], p["b"])])

    jacobian = jax.jacfwd(flow)(jax.random.normal(jax.random.key(5), (6,)))
    np.testing.assert_allclose(jnp.linalg.det(jacobian), 1.0, atol=1e-8)
    assert jnp.abs(jacobian - jnp.eye(6)).max() > 0.3


def test_a_scale_is_a_change_of_units() -> None:
    """Steps of scale s on the target are steps of scale 1 on the target in units of s."""

    def in_units(position: Position) -> Density:
        found = quartic({k: v * scale()[k] for k, v in position.items()})
        return found._replace(gradient={k: v * scale()[k] for k, v in found.gradient.items()})

    position, momentum, ones = draw(6), draw(7), jax.tree.map(jnp.ones_like, scale())
    end, p = go(position, momentum, 0.1, 9)
    state = init_state({k: v / scale()[k] for k, v in position.items()}, in_units)
    other, other_p = move(state, momentum, ones, jnp.asarray(0.1), jnp.asarray(9), in_units)
    for name in position:
        np.testing.assert_allclose(other.position[name] * scale()[name], end.position[name], rtol=1e-12)
        np.testing.assert_allclose(other_p[name], p[name], rtol=1e-11)


def test_acceptance_is_the_metropolis_rule() -> None:
    """Of many chains at one point, as many are accepted as the mean of the acceptance rates says."""
    num_chains = 20_000
    position = jax.tree.map(lambda x: jnp.repeat(x[:1], num_chains, axis=0), draw(8))
    keys = jax.random.split(jax.random.key(9), num_chains)
    step = jax.jit(
        lambda: run_trajectory(keys, init_state(position, quartic), quartic, scale(), jnp.asarray(1.0), jnp.asarray(3))
    )
    state, info, trajectory = step()
    rate = np.asarray(info.acceptance_rate)
    assert 0.2 < rate.mean() < 0.9, "this test wants rejections"
    z = (np.asarray(info.accepted) - rate).sum() / np.sqrt((rate * (1 - rate)).sum())
    assert abs(z) < 4.5
    sure = rate >= 1
    assert info.accepted[sure].all()
    moved = np.asarray((state.position["a"] != position["a"]).any(axis=1))
    np.testing.assert_array_equal(moved, info.accepted)
    kept = np.where(info.accepted, trajectory.proposal.position["b"], position["b"])
    np.testing.assert_array_equal(state.position["b"], kept)


def test_momenta_are_standard_normal_and_independent() -> None:
    """At the start of a trajectory the energy above the potential is half a chi-squared with a degree a coordinate."""
    num_chains = 20_000
    position = jax.tree.map(lambda x: jnp.repeat(x[:1], num_chains, axis=0), draw(8))
    keys = jax.random.split(jax.random.key(10), num_chains)
    tiny = jnp.asarray(1e-9)
    step = jax.jit(lambda: run_trajectory(keys, init_state(position, quartic), quartic, scale(), tiny, jnp.asarray(1)))
    _, info, trajectory = step()
    p = np.column_stack([trajectory.momentum["a"], trajectory.momentum["b"]])
    assert np.abs(p.mean(axis=0)).max() < 5 / np.sqrt(num_chains)
    np.testing.assert_allclose(np.cov(p.T), np.eye(3), atol=5 * np.sqrt(2 / num_chains))
    np.testing.assert_allclose((info.energy + info.lp).mean(), 1.5, atol=5 * np.sqrt(1.5 / num_chains))


def test_small_changes_of_a_huge_density_decide() -> None:
    """At a log density of -1e7 a float32 has a resolution of 1 nat: acceptance must not see it."""

    def offset(position: Position) -> Density:
        found = quartic(position)
        return found._replace(log_prior=found.log_prior + 3e6, log_likelihood=found.log_likelihood - 1e7)

    keys = jax.random.split(jax.random.key(11), NUM_CHAINS)
    found = [
        run_trajectory(keys, init_state(draw(1, "float32"), f), f, scale("float32"), jnp.asarray(0.5), jnp.asarray(4))[
            1
        ]
        for f in (quartic, offset)
    ]
    np.testing.assert_allclose(found[0].acceptance_rate, found[1].acceptance_rate, atol=1e-8)
