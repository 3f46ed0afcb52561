"""What TensorFlow Probability's tutorial "Distributed inference with JAX" does, done with TFP's own `Sharded`.

There the whole computation runs once per device, each with its rows. On rows that divide evenly it must have the log
density, the gradient and the trajectories of this project's two ways of sharding. Why it is not used for programs is
tested as well: it counts padding, and it needs types to be left unchecked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian.metrics.identity import IdentityMetric
from bayesmesh.kernels.hamiltonian.trajectory import batch_dot, init_state, move
from bayesmesh.sampling.density.mesh import DATA_AXIS

tfd, tfed = tfp.distributions, tfp.experimental.distribute

NUM_DEVICES, NUM_ROWS = 4, 36
MESH = (1, NUM_DEVICES)


@pytest.fixture(scope="module", params=["matrix_factorization", "softmax_regression"])
def case(request, make_case):
    return make_case(request.param, num_rows=NUM_ROWS)


def on_devices(function: Any, in_specs: Any, out_specs: Any, *, check_vma: bool = False) -> Any:
    devices = jax.devices()[:NUM_DEVICES]
    mesh = jax.make_mesh((NUM_DEVICES,), (DATA_AXIS,), axis_types=(AxisType.Auto,), devices=devices)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma))


def lies(case) -> dict[str, P]:
    """Where latents lie, sorted as JAX does: those that follow the rows are in shards."""
    names = case.model.prior(case.spec).model
    return {k: P(DATA_AXIS) if k in case.model_class.local_latents else P() for k in sorted(names)}


def joint(case, rows: Mapping[str, jax.Array]) -> Any:
    """Prior of the latents and distribution of the outcome, as one device sees them."""
    parts = case.model.prior(dataclasses.replace(case.spec, num_rows=len(next(iter(rows.values()))))).model

    def sharded(distribution: Any) -> Any:
        return tfed.Sharded(distribution, shard_axis_name=DATA_AXIS)

    def model() -> Iterator[Any]:
        latents = {}
        for name, part in sorted(parts.items()):
            here = sharded(part) if name in case.model_class.local_latents else part
            latents[name] = yield tfd.JointDistributionCoroutine.Root(here)
        predictive = case.model.predict(latents, rows)
        yield sharded(tfd.Independent(predictive, len(predictive.batch_shape)))

    return tfed.JointDistributionCoroutine(model)


def log_density(case, latents: Mapping[str, jax.Array], rows: Mapping[str, jax.Array]) -> jax.Array:
    return joint(case, rows).log_prob([*(latents[k] for k in sorted(latents)), case.model.outcome(rows)])


@pytest.fixture(scope="module")
def latents(case) -> dict[str, jax.Array]:
    drawn = jax.jit(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(1)))()
    return {k: drawn[k] for k in lies(case)}


def one_chain(program: Any, latents: Mapping[str, jax.Array]) -> Position:
    """Named arrays, of latents or of momenta, as a position of one chain."""
    return jax.jit(lambda z: jax.tree.map(lambda x: x[None], program.target.position.pack(z)))(latents)


def by_name(program: Any, position: Position) -> dict[str, jax.Array]:
    """A position of one chain as named arrays."""
    unpack = program.target.position.unpack
    return jax.jit(lambda q: unpack(jax.tree.map(lambda x: x[0], q), jnp.dtype("float64")))(position)


def near(found: Any, expected: Any, precision: float = 1e-12) -> None:
    bound = precision * max(1.0, np.abs(np.asarray(expected)).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=bound)


def test_a_sum_over_devices_is_on_every_device() -> None:
    total = on_devices(lambda x: jax.lax.psum(x, DATA_AXIS), P(DATA_AXIS), P(DATA_AXIS))(jnp.arange(NUM_DEVICES))
    assert total.tolist() == [6] * NUM_DEVICES


def test_a_sharded_distribution_draws_shards_and_reports_one_density() -> None:
    def run(key: jax.Array) -> Any:
        distribution = tfed.Sharded(tfd.Normal(jnp.zeros((), jnp.float64), 2.0), shard_axis_name=DATA_AXIS)
        draw = distribution.sample(seed=key)
        return draw[None], distribution.log_prob(draw)[None]

    draws, densities = on_devices(run, P(), P(DATA_AXIS))(jax.random.key(0))
    assert len(np.unique(draws)) == NUM_DEVICES
    near(densities, np.full(NUM_DEVICES, tfd.Normal(jnp.zeros((), jnp.float64), 2.0).log_prob(draws).sum()))


@pytest.mark.parametrize("way", ["named", "shard_map"])
def test_a_joint_distribution_with_sharded_parts_has_our_density_and_gradient(case, latents, make_program, way) -> None:
    there = lies(case)
    theirs = on_devices(
        jax.value_and_grad(lambda z, rows: log_density(case, z, rows)), (there, P(DATA_AXIS)), (P(), there)
    )
    value, gradient = theirs(latents, case.arrays)
    program = make_program(case, "hmc", mesh=MESH, sharding=way)
    log_density_of = jax.jit(lambda q, data: program.target.bind(data).log_density(q))
    ours = log_density_of(one_chain(program, latents), program.put_data(case.rows))
    near(value, (ours.log_prior + ours.log_likelihood)[0])
    ours_by_name = by_name(program, ours.gradient)
    for name, found in gradient.items():
        near(found, ours_by_name[name])


def test_a_sharded_trajectory_is_ours_from_the_same_momentum(case, latents, make_program) -> None:
    """One transition of TFP's kernel with momenta in shards, and this project's leapfrog steps from those momenta."""
    there, step_size, num_steps = lies(case), 0.01, 5
    axes = [[DATA_AXIS] if there[k] == P(DATA_AXIS) else [] for k in there]

    def run(z: Mapping[str, jax.Array], rows: Mapping[str, jax.Array], key: jax.Array) -> Any:
        kernel = tfp.mcmc.HamiltonianMonteCarlo(
            lambda *values: log_density(case, dict(zip(there, values, strict=True)), rows), step_size, num_steps
        ).experimental_with_shard_axes(axes)
        state = [z[k] for k in there]
        _, results = kernel.one_step(state, kernel.bootstrap_results(state), seed=key)
        proposed = results.proposed_results
        parts = (proposed.initial_momentum, proposed.final_momentum, results.proposed_state)
        return [dict(zip(there, part, strict=True)) for part in parts], results.log_accept_ratio

    on_each = on_devices(run, (there, P(DATA_AXIS), P()), ([there] * 3, P()))
    (momentum, momentum_end, proposed), log_ratio = on_each(latents, case.arrays, jax.random.key(2))
    for name in case.model_class.local_latents:
        assert len(np.unique(momentum[name])) == momentum[name].size, "devices share their momenta"

    program = make_program(case, "hmc", mesh=MESH, sharding="shard_map")

    @jax.jit
    def ours(position: Position, momentum: Position, data: Any) -> Any:
        target = program.target.bind(data)
        begin = init_state(position, target)
        steps = (jnp.asarray(step_size), jnp.asarray(num_steps))
        return begin, *move(IdentityMetric(), (), target, *steps, begin, momentum)

    first_momentum = one_chain(program, momentum)
    begin, end, end_momentum = ours(one_chain(program, latents), first_momentum, program.put_data(case.rows))
    end_by_name, momentum_by_name = by_name(program, end.position), by_name(program, end_momentum)
    for name in there:
        near(proposed[name], end_by_name[name])
        near(momentum_end[name], momentum_by_name[name])
    change = (end.log_prior - begin.log_prior) + (end.log_likelihood - begin.log_likelihood)
    kinetic = 0.5 * (batch_dot(first_momentum, first_momentum) - batch_dot(end_momentum, end_momentum))
    near(log_ratio, (change + kinetic)[0], 1e-9)


def test_sharded_distributions_count_padding(make_case) -> None:
    """Reason one why programs do without: three rows of padding cost their prior and their likelihood."""
    case = make_case("matrix_factorization", num_rows=NUM_ROWS, width=3)
    full = jax.jit(lambda: case.model.prior(case.spec).sample(seed=jax.random.key(1)))()
    is_row = jnp.arange(NUM_ROWS) < NUM_ROWS - 3

    def cut(x: jax.Array) -> jax.Array:
        return jnp.where(is_row.reshape(-1, *[1] * (x.ndim - 1)), x, 0)

    latents = {k: cut(full[k]) if there == P(DATA_AXIS) else full[k] for k, there in lies(case).items()}
    rows = {k: cut(v) for k, v in case.arrays.items()}
    shards = on_devices(lambda z, rows: log_density(case, z, rows), (lies(case), P(DATA_AXIS)), P())
    fewer = dataclasses.replace(case.spec, num_rows=NUM_ROWS - 3)
    kept = {k: v[: NUM_ROWS - 3] if k in case.model_class.local_latents else v for k, v in latents.items()}
    likelihood = jax.jit(case.model.log_likelihood)(latents, rows)
    whole = jax.jit(case.model.prior(fewer).log_prob)(kept) + likelihood[: NUM_ROWS - 3].sum()
    likelihood_of_zeros = likelihood[-3:].sum()
    near(shards(latents, rows) - whole, likelihood_of_zeros - 3 * 4 * 0.5 * np.log(2 * np.pi), 1e-9)


def test_sharded_distributions_need_types_to_be_left_unchecked(case, latents) -> None:
    """Reason two. When this fails TFP has changed, and the decision can be looked at again."""
    there = lies(case)
    checked = on_devices(
        jax.grad(lambda z, rows: log_density(case, z, rows)), (there, P(DATA_AXIS)), there, check_vma=True
    )
    with pytest.raises(ValueError, match="Custom VJP bwd rule attached to rwb_psum"):
        checked(latents, case.arrays)


def test_a_sum_by_hand_with_unchecked_types_has_a_wrong_gradient() -> None:
    """What checked types are for: the same function, and nothing but the setting is different."""

    def gradient(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.grad(lambda x: -0.5 * jax.lax.psum(jnp.sum((y - x) ** 2), DATA_AXIS))(x)

    y = jnp.arange(8.0)
    unchecked, checked = (
        on_devices(gradient, (P(), P(DATA_AXIS)), P(), check_vma=check)(jnp.zeros(()), y) for check in (False, True)
    )
    assert checked == y.sum()
    assert abs(unchecked - y.sum()) > 0.5 * y.sum()
