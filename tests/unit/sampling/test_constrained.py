"""Latents that are positive, follow the rows along their second axis, and hang on another latent.

No built-in model has such a prior; the contract allows it, in both ways of sharding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import gamma, norm
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.kernels.base import Density
from bayesmesh.models.base import Model
from bayesmesh.sampling.density import Target

tfd = tfp.distributions

NUM_CHAINS = 4


class Sizes(Model):
    """Each entry of `x` is normal with a scale of its own, a Gamma(2) variate of unknown `spread`."""

    pretty_name = "Sizes"
    local_latents: ClassVar[Mapping[str, int]] = {"sizes": 1}

    def prior(self, data_spec: Any) -> Any:
        one = jnp.ones((), data_spec.dtype)
        shape = (*data_spec.fields["x"].shape, data_spec.num_rows)
        return tfd.JointDistributionNamed(
            {"spread": tfd.HalfNormal(one), "sizes": lambda spread: tfd.Sample(tfd.Gamma(2 * one, 1 / spread), shape)}
        )

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return self.predict(latents, rows).log_prob(rows["x"])

    def predict(self, latents: Any, inputs: Any) -> Any:
        return tfd.Independent(tfd.Normal(0 * latents["sizes"].T, latents["sizes"].T), 1)

    def summaries(self, latents: Any, rows: Any) -> Any:
        return {"spread": latents["spread"]}


@pytest.fixture(scope="module")
def case(make_case):
    return dataclasses.replace(make_case("gaussian"), name="sizes", model_class=Sizes)


@pytest.fixture(scope="module")
def position(case, make_target) -> dict[str, jax.Array]:
    return jax.jit(jax.vmap(make_target(case).sample_prior))(jax.random.split(jax.random.key(0), NUM_CHAINS))


@pytest.fixture(scope="module")
def expected(case, make_target, position) -> Density:
    """From textbook densities; the Jacobian by differentiating the map, which acts on each coordinate alone."""
    target = make_target(case)

    def parts(z: Any) -> tuple[jax.Array, jax.Array]:
        latents, slopes = jax.jvp(target.constrain, (z,), (jax.tree.map(jnp.ones_like, z),))
        prior = jnp.log(2.0) + norm.logpdf(latents["spread"])
        prior += gamma.logpdf(latents["sizes"], 2.0, scale=latents["spread"]).sum()
        prior += sum(jnp.log(slope).sum() for slope in slopes.values())
        return prior, norm.logpdf(case.arrays["x"], 0, latents["sizes"].T).sum()

    def of_chain(z: Any) -> Density:
        return Density(*parts(z), jax.grad(lambda z: sum(parts(z)))(z))

    return jax.jit(jax.vmap(of_chain))(position)


def assert_near(found: Density, expected: Density) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        bound = 1e-12 * max(1.0, np.abs(other).max())
        # Behind the rows there is padding, whose gradient is zero.
        both = tuple(slice(n) for n in other.shape)
        np.testing.assert_allclose(one[both], other, rtol=0, atol=bound)
        assert np.count_nonzero(one) == np.count_nonzero(other)


def evaluate(case, make_program, position, sharding: str, mesh: tuple[int, int], row_tile: int) -> Density:
    program = make_program(case, "hmc", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding)
    shapes = program.target.position_shapes
    assert shapes["sizes"] == (program.target.layout.padded_rows, 2)
    padding = shapes["sizes"][0] - position["sizes"].shape[1]
    padded = {**position, "sizes": jnp.pad(position["sizes"], [(0, 0), (0, padding), (0, 0)])}
    placed = program.place_state({k: jax.ShapeDtypeStruct(v.shape, v.dtype) for k, v in padded.items()})
    there = {k: jax.device_put(v, placed[k]) for k, v in padded.items()}
    return jax.jit(program.target.log_density)(there, program.put_data(case.rows))


LAYOUTS = [("named", (1, 1), 37), ("named", (2, 4), 4), ("shard_map", (1, 7), 37), ("shard_map", (2, 4), 4)]


@pytest.mark.parametrize(("sharding", "mesh", "row_tile"), LAYOUTS)
def test_the_density_of_constrained_local_latents(
    case, make_program, position, expected, sharding, mesh, row_tile
) -> None:
    assert_near(evaluate(case, make_program, position, sharding, mesh, row_tile), expected)


def test_a_missing_jacobian_is_noticed(case, make_program, position, expected, monkeypatch) -> None:
    def without(self: Target, position: Any) -> Any:
        latents = self.bijector.forward(self._unpack(position))
        return self.prior.log_prob(latents), self._pack(latents)

    monkeypatch.setattr(Target, "_prior_and_latents", without)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_near(evaluate(case, make_program, position, "named", (1, 1), 37), expected)


def test_latents_are_positive_and_in_the_prior_s_axes(case, make_target, position) -> None:
    latents = make_target(case, 4, 5).constrain(jax.tree.map(lambda x: x[0], position))
    assert latents["sizes"].shape == (2, case.spec.num_rows)
    assert all((v > 0).all() for v in latents.values())
