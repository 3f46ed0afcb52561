"""The length of trajectories climbs the ChEES criterion."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.trajectory_length import halton, init_length, update_length
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.diagonal import DiagonalMetric
from bayesmesh.kernels.hamiltonian.metrics.identity import IdentityMetric
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, Trajectory, init_state, run_trajectory
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, DIMENSION = 32, 8


def test_halton_numbers_fill_the_unit_interval_evenly() -> None:
    numbers = np.asarray([halton(jnp.asarray(i)) for i in range(64)])
    expected = [sum(int(b) / 2 ** (n + 1) for n, b in enumerate(reversed(f"{i + 1:b}"))) for i in range(64)]
    np.testing.assert_allclose(numbers, expected, rtol=1e-15)
    assert ((numbers > 0) & (numbers < 1)).all()
    # The first 63 are all multiples of 1/64.
    np.testing.assert_allclose(np.sort(numbers[:63]), np.arange(1, 64) / 64)


def test_halton_numbers_of_large_indices_stay_inside() -> None:
    for index in (2**20, 2**30, 2**31 - 3):
        assert 0 < halton(jnp.asarray(index, jnp.int32)) < 1


def learn(sd: np.ndarray, first: float, step_size: float, num_steps: int = 400) -> float:
    """Length after as many trajectories, from exact draws of a normal; unit scale."""
    target, metric = FunctionTarget(lambda q: -0.5 * jnp.sum((q / sd) ** 2)), IdentityMetric()
    start = sd * jax.random.normal(jax.random.key(0), (NUM_CHAINS, len(sd)))
    begin = init_state(Position(start, None), target)

    @jax.jit
    def run(state: HamiltonianState):
        def step(carry, i):
            state, length = carry
            keys = jax.random.split(jax.random.fold_in(jax.random.key(1), i), NUM_CHAINS)
            jitter = halton(i)
            count = jnp.clip(jnp.ceil(jitter * jnp.exp(length.log_length) / step_size), 1, 200).astype(jnp.int32)
            after, info = run_trajectory(keys, state, target, metric, (), jnp.asarray(step_size), count)
            return (after, update_length(length, state.position, info.trajectory, metric, (), jitter)), None

        return jax.lax.scan(step, (state, init_length(first)), jnp.arange(num_steps))[0][1]

    return float(jnp.exp(run(begin).log_average))


@pytest.mark.parametrize("first", [0.3, 3.4])
def test_the_length_for_an_isotropic_normal_is_the_optimum(first: float) -> None:
    """The criterion is sin(t)**2 there; over lengths spread evenly on (0, T) its mean is highest at tan 2T = 2T."""
    length = learn(np.ones(DIMENSION), first, step_size=0.25)
    np.testing.assert_allclose(length, 4.4934 / 2, rtol=0.2)


def test_the_length_grows_where_short_trajectories_are_poor() -> None:
    """One direction is eight times as wide as the others, and the length is in proportion to it."""
    sd = np.ones(DIMENSION)
    sd[0] = 8.0
    length = learn(sd, 0.5, step_size=0.4)
    assert 8 * np.pi / 2 / 1.5 < length < 8 * 2 * np.pi


def of(values: np.ndarray) -> Position:
    return Position(jnp.asarray(values), None)


def trajectory_of(end: np.ndarray, velocity: np.ndarray, acceptance: np.ndarray) -> Trajectory:
    zero = jnp.zeros(len(end))
    proposal = HamiltonianState(of(end), zero, zero, of(np.zeros_like(end)), jnp.asarray(1))
    return Trajectory(proposal, of(velocity), jnp.asarray(acceptance))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_length_follows_the_sign_of_the_criterion_s_gradient(sign: float) -> None:
    """Chains that ended farther out and still move outwards want more time; those that move inwards want less."""
    generator = np.random.default_rng(0)
    start = generator.standard_normal((NUM_CHAINS, 3))
    start -= start.mean(axis=0)
    trajectory = trajectory_of(2 * start, sign * start, np.ones(NUM_CHAINS))
    after = update_length(init_length(1.0), of(start), trajectory, IdentityMetric(), (), jnp.asarray(0.5))
    assert sign * after.log_length > 0


def test_trajectories_that_ended_nowhere_have_no_say() -> None:
    generator = np.random.default_rng(0)
    start, end, velocity = (generator.standard_normal((6, 3)) for _ in range(3))
    acceptance = generator.uniform(size=6)
    lost_end, lost_velocity, lost = end.copy(), velocity.copy(), acceptance.copy()
    lost_end[1], lost_velocity[1], lost[1] = np.nan, np.inf, 0.0
    found = [
        update_length(init_length(1.0), of(start), trajectory_of(e, v, a), IdentityMetric(), (), jnp.asarray(0.5))
        for e, v, a in ((lost_end, lost_velocity, lost), (end, velocity, lost))
    ]
    assert jnp.isfinite(found[0].log_length)
    np.testing.assert_allclose(found[0].log_length, found[1].log_length, rtol=1e-9)


def test_a_chain_that_begins_nowhere_and_does_not_count_has_no_say() -> None:
    generator = np.random.default_rng(0)
    start, end, velocity = (generator.standard_normal((6, 3)) for _ in range(3))
    acceptance = generator.uniform(size=6)
    acceptance[1] = np.nan
    nowhere = [x.copy() for x in (start, end)]
    nowhere[0][1], nowhere[1][1] = np.nan, np.inf
    found = [
        update_length(
            init_length(1.0), of(s), trajectory_of(e, velocity, acceptance), IdentityMetric(), (), jnp.asarray(0.5)
        )
        for s, e in (nowhere, (start, end))
    ]
    assert found[0].second_moment > 0
    np.testing.assert_allclose(found[0].second_moment, found[1].second_moment, rtol=1e-9)


def test_padding_has_no_say() -> None:
    generator = np.random.default_rng(0)
    start, end, velocity = (generator.standard_normal((6, 3)) for _ in range(3))
    scale = of(np.asarray([1.0, 2.0, 0.0]))
    other = [x.copy() for x in (start, end)]
    other[0][:, 2], other[1][:, 2] = 0, 0
    velocity[:, 2] = 0
    found = [
        update_length(
            init_length(1.0),
            of(s),
            trajectory_of(e, velocity, np.ones(6)),
            DiagonalMetric(),
            scale,
            jnp.asarray(0.5),
        )
        for s, e in ((start, end), other)
    ]
    np.testing.assert_allclose(found[0].second_moment, found[1].second_moment, rtol=1e-12)


def test_distances_are_those_of_the_metric() -> None:
    """Positions in other units with the metric in the same units give the same step."""
    generator = np.random.default_rng(4)
    start, end, velocity = (generator.standard_normal((6, 3)) for _ in range(3))
    units = np.asarray([0.1, 1.0, 50.0])
    jitter, rate = jnp.asarray(0.5), np.ones(6)
    plain = update_length(init_length(1.0), of(start), trajectory_of(end, velocity, rate), IdentityMetric(), (), jitter)
    scaled = update_length(
        init_length(1.0),
        of(units * start),
        trajectory_of(units * end, velocity, rate),
        DiagonalMetric(),
        of(units),
        jitter,
    )
    np.testing.assert_allclose(scaled.second_moment, plain.second_moment, rtol=1e-12)
    assert plain.second_moment > 0
