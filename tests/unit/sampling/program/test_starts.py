"""Chains start where density and gradient are finite, wherever else they run; else the latent or the rows are named."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.gaussian import Gaussian
from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.program.start_points import place_starts
from bayesmesh.sampling.program.starts import MOST_ATTEMPTS, NoFiniteStart, choose_starts, explain_start, start_chains
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.arrays import open_group
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger
from levels import Levels, levels_case

tfd = tfp.distributions

MOST_LEVEL = 2.2
"""Exceeded by one of 37 standard normals in four of ten draws."""


class Capped(Levels):
    """Rows have density zero at high levels."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        is_high = latents["levels"][:, 0] > MOST_LEVEL
        return jnp.where(is_high, -jnp.inf, super().log_likelihood(latents, rows))


def capped(build: Any, make_case: Any, **more: Any) -> Any:
    case = dataclasses.replace(levels_case(make_case), model_class=Capped)
    more = {"initial": {"method": "prior"}} | more
    return build(case, "hmc", num_chains=6, is_optimised=False, row_tile=5, num_leapfrog_steps=2, **more)


def first_attempts(built: Any, num_attempts: int) -> tuple[np.ndarray, np.ndarray]:
    """The levels (attempt, chain, row, dimension) of the first attempts of all chains, and which are finite."""
    arguments, found = built.arguments(), []
    for attempt in range(num_attempts):
        at = arguments._replace(attempt=np.full_like(arguments.attempt, attempt))
        state, lp = built.compiled["initialise"](at, built.data)
        found.append((np.asarray(state.kernel.position.local)[:, :37], np.isfinite(lp)))
    return tuple(map(np.stack, zip(*found, strict=True)))  # type: ignore[return-value]


@pytest.fixture(scope="module")
def alone(build, make_case) -> Any:
    return capped(build, make_case)


def test_a_chain_takes_its_first_finite_start_and_keeps_it(alone) -> None:
    levels, is_finite = first_attempts(alone, 12)
    np.testing.assert_array_equal(is_finite, levels[..., 0].max(axis=-1) <= MOST_LEVEL)
    assert 0 < is_finite[0].sum() < 6, "some chains start again and others do not"
    assert is_finite.any(axis=0).all()
    state = start_chains(alone.compiled["initialise"], alone.arguments(), alone.data)
    found = np.asarray(state.kernel.position.local)[:, :37]
    np.testing.assert_array_equal(found, levels[is_finite.argmax(axis=0), np.arange(6)])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state.kernel))


def test_no_chain_starts_again_where_the_density_is_finite_everywhere(build, make_case) -> None:
    built = build(make_case("gaussian"), "hmc", num_warmup=4, is_optimised=False, num_leapfrog_steps=2)
    first, lp = built.compiled["initialise"](built.arguments(), built.data)
    assert np.isfinite(lp).all()
    state = start_chains(built.compiled["initialise"], built.arguments(), built.data)
    jax.tree.map(np.testing.assert_array_equal, state, first)
    # The key of a start before there were attempts: chains that start well are the same for ever.
    method, attempt, numbers = (
        built.program.sampling.initial.method,
        jnp.zeros(4, jnp.uint32),
        jnp.arange(4, dtype=jnp.uint32),
    )
    of_whom = np.arange(4) // built.program.num_together * built.program.num_together
    keys = [jax.random.fold_in(jax.random.fold_in(jax.random.key(3), chain), 2**32 - 1) for chain in of_whom]
    sample = jax.jit(lambda keys: place_starts(method, built.program.target, keys, attempt, 1.0, None, numbers))
    expected = sample(jnp.stack(keys))
    np.testing.assert_array_equal(state.kernel.position.shared, expected.shared)


@pytest.mark.parametrize("method", ["auto", "uniform"])
def test_two_chains_start_on_either_side_in_any_group(build, make_case, method: str) -> None:
    built = build(
        make_case("gaussian"), "hmc", num_chains=6, is_optimised=False, num_leapfrog_steps=2, initial={"method": method}
    )
    starts = [
        np.asarray(
            built.compiled["initialise"](built.arguments(first_chain=first), built.data)[0].kernel.position.shared
        )
        for first in (0, 3)
    ]
    np.testing.assert_array_equal(starts[0][3:], starts[1][:3])
    centers = (starts[0][::2] + starts[0][1::2]) / 2
    np.testing.assert_allclose(centers, np.broadcast_to(centers[0], centers.shape), atol=1e-6)
    assert np.abs(starts[0][0] - starts[0][1]).max() > 0.1


def test_starts_are_those_of_the_chain_in_any_group_and_on_any_mesh(build, make_case, alone) -> None:
    expected = start_chains(alone.compiled["initialise"], alone.arguments(), alone.data).kernel
    shifted = start_chains(alone.compiled["initialise"], alone.arguments(first_chain=2), alone.data).kernel
    np.testing.assert_array_equal(shifted.position.shared[:4], expected.position.shared[2:])
    spread = capped(build, make_case, mesh=(2, 2))
    found = start_chains(spread.compiled["initialise"], spread.arguments(), spread.data).kernel
    np.testing.assert_array_equal(found.position.shared, expected.position.shared)
    np.testing.assert_array_equal(found.position.local[:, :37], expected.position.local[:, :37])


def test_a_climb_starts_again_too(build, make_case) -> None:
    built = capped(build, make_case, initial={"method": "mode", "steps": 2, "learning_rate": 1e-6})
    assert not np.isfinite(built.compiled["initialise"](built.arguments(), built.data)[1]).all()
    state = start_chains(built.compiled["initialise"], built.arguments(), built.data)
    assert np.isfinite(state.kernel.log_likelihood).all()


def test_a_resumed_run_has_the_starts_of_an_uninterrupted_one(alone, tmp_path: Path) -> None:
    def run(name: str, *draws: int) -> dict[str, np.ndarray]:
        for wanted in draws:
            store = ChainStore(tmp_path / name, 16, {"identity": "one"})
            ledger = Ledger(tmp_path / "ledger", "test")
            with Interruption(0) as interruption:
                loop = Loop(
                    alone.program, alone.compiled, GroupKey(3, 0), alone.data, store, ledger, interruption, label=name,
                    facts={},
                )  # fmt: skip
                loop.run(wanted, store.begin_writing())
        root = open_group(tmp_path / name / "draws.zarr")
        return {name: np.asarray(array[...]) for name, array in root["posterior"].arrays()}

    whole, resumed = run("whole", 6), run("resumed", 0, 2, 6)
    state = start_chains(alone.compiled["initialise"], alone.arguments(), alone.data)
    _, _, expected = alone.go(alone.arguments(), state, 0, alone.program.sampling.warmup + 6, 13)
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values)
        np.testing.assert_array_equal(values, np.swapaxes(expected[name][-6:], 0, 1))


# -- no start is finite -------------------------------------------------------------------------------------------------


class Nowhere(Gaussian):
    """The third row and the fifth have density zero, whatever the mean."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        is_odd = (rows["x"][:, 0] > 1000) & jnp.isfinite(latents["mean"][0])
        return jnp.where(is_odd, -jnp.inf, super().log_likelihood(latents, rows))


class Cornered(Gaussian):
    """Finite, with a gradient that is not a number: the root of zero."""

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return super().log_likelihood(latents, rows) + jnp.sqrt(0 * latents["mean"][0])


class Priced(Gaussian):
    """A second latent has density zero wherever its prior draws it."""

    def prior(self, data_spec: Any) -> Any:
        zero = jnp.zeros((), data_spec.dtype)

        class Nothing(tfd.Normal):
            def _log_prob(self, x: jax.Array) -> jax.Array:
                return jnp.full_like(x, -jnp.inf)

        mean = tfd.Sample(tfd.Normal(zero, zero + 1), data_spec.fields["x"].shape)
        return tfd.JointDistributionNamed({"mean": mean, "price": Nothing(zero, zero + 1)})


class Endless(Gaussian):
    """A prior so wide that its draws overflow."""

    def prior(self, data_spec: Any) -> Any:
        wide = tfd.Normal(jnp.zeros((), data_spec.dtype), jnp.inf)
        return tfd.JointDistributionNamed({"mean": tfd.Sample(wide, data_spec.fields["x"].shape)})


class Bare(Gaussian):
    """A prior that is not a TFP distribution and has density zero."""

    def prior(self, data_spec: Any) -> Any:
        given = super().prior(data_spec)

        class Prior:
            sample = given.sample
            experimental_default_event_space_bijector = given.experimental_default_event_space_bijector

            def log_prob(self, value: Any) -> jax.Array:
                return given.log_prob(value) - jnp.inf

        return Prior()


CASES = {
    Nowhere: ("the log likelihood is -inf in training row 3 (x = [5000, ", "; -inf in training row 5 (x = [5000, "),
    Cornered: (
        "the gradient of the log likelihood of 5 rows, the first of them training row 1, by the latent 'mean' at [",
        "] is nan",
    ),
    Priced: ("the log prior of the latent 'price' at ", " is -inf"),
    Bare: ("in the last attempt of chain 21, the log prior is -inf",),
    Endless: ("the latent 'mean' is ", "inf"),
}


@pytest.mark.parametrize("model_class", CASES)
def test_the_latent_or_the_rows_at_fault_are_named(build, make_case, model_class) -> None:
    case = make_case("gaussian", "float32")
    rows = {"x": case.rows["x"].copy()}
    rows["x"][[2, 4], 0] = 5000
    built = build(
        dataclasses.replace(case, model_class=model_class, rows=rows), "hmc", num_chains=10, is_optimised=False,
        row_tile=5, num_leapfrog_steps=2,
    )  # fmt: skip
    calls = []

    def counted(*given: Any) -> Any:
        calls.append(None)
        return built.compiled["initialise"](*given)

    with pytest.raises(NoFiniteStart) as refused:
        start_chains(counted, built.arguments(first_chain=20), built.data)
    assert len(calls) == MOST_ATTEMPTS
    assert refused.value.chains == list(range(10))
    error = explain_start(built.program, GroupKey(3, 20), [1, *range(2, 10)], lambda a, b: {"x": rows["x"][a:b]})
    assert "for chains 21, 22, 23, 24, 25, 26, 27, 28 and 1 more; in the last attempt of chain 21, " in error.message
    for text in CASES[model_class]:
        assert text in error.message
    assert "sampling.initial.method" in error.remedy
    assert "float64" in error.remedy
    assert error.exit_code == 2


def test_starts_among_the_worse_half_are_drawn_again(alone) -> None:
    """A chain takes the first of those compared that is good enough, and its best if none is."""
    levels, lp = [], []
    for attempt in range(8):
        at = alone.arguments()._replace(attempt=np.full(6, attempt, np.uint32))
        state, found = alone.compiled["initialise"](at, alone.data)
        levels.append(np.asarray(state.kernel.position.local))
        lp.append(np.asarray(found))
    chosen = choose_starts(np.stack(lp), np.array(0, np.uint32))
    assert len(set(chosen)) > 1, "not all chains choose alike"
    limit = np.nanmedian(lp)
    for chain, attempt in enumerate(chosen):
        tried, partner = (np.stack(lp)[:, each] for each in (chain, chain ^ 1))
        good = [i for i in range(8) if tried[i] >= limit]
        of_both = [i for i in good if partner[i] >= limit]
        assert attempt == ([*of_both, *good] or [np.nanargmax(tried)])[0]
    arguments = alone.arguments(), alone.data, jax.block_until_ready, "uniform"
    state = start_chains(alone.compiled["initialise"], *arguments)
    np.testing.assert_array_equal(state.kernel.position.local, np.stack(levels)[chosen, np.arange(6)])
