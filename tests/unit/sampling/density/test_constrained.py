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

from bayesmesh.kernels.base import POSITION
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.program.values import place

tfd = tfp.distributions

NUM_CHAINS = 4


class Sizes(Model):
    """Each entry of `x` is normal with a scale of its own, a Gamma(2) variate of unknown `spread`."""

    pretty_name = "Sizes"
    local_latents: ClassVar[Mapping[str, int]] = {"sizes": 1}

    def prior(self, data_spec: Any) -> Any:
        one = jnp.ones((), data_spec.dtype)
        shape = (*data_spec.fields["x"].shape, data_spec.num_entries)
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
def z(case) -> dict[str, jax.Array]:
    """Unconstrained latents of draws of the prior, in the prior's axes."""

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        prior = case.model.prior(case.spec)
        return prior.experimental_default_event_space_bijector().inverse(prior.sample(seed=key))

    return jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), NUM_CHAINS))


@pytest.fixture(scope="module")
def expected(case, z) -> tuple[Any, Any, Any]:
    """From textbook densities; the Jacobian by differentiating the map, which acts on each coordinate alone."""

    def parts(z: Any) -> tuple[jax.Array, jax.Array]:
        bijector = case.model.prior(case.spec).experimental_default_event_space_bijector()
        latents, slopes = jax.jvp(bijector.forward, (z,), (jax.tree.map(jnp.ones_like, z),))
        prior = jnp.log(2.0) + norm.logpdf(latents["spread"])
        prior += gamma.logpdf(latents["sizes"], 2.0, scale=latents["spread"]).sum()
        prior += sum(jnp.log(slope).sum() for slope in slopes.values())
        return prior, norm.logpdf(case.arrays["x"], 0, latents["sizes"].T).sum()

    def of_chain(z: Any) -> Any:
        return *parts(z), jax.grad(lambda z: sum(parts(z)))(z)

    return jax.device_get(jax.jit(jax.vmap(of_chain))(z))


def assert_near(found: tuple[Any, Any, Any], expected: tuple[Any, Any, Any]) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * max(1.0, np.abs(other).max()))


def evaluate(case, make_program, z, sharding: str, mesh: tuple[int, int], row_tile: int) -> tuple[Any, Any, Any]:
    """Log prior, log likelihood and gradient by latents, over a mesh."""
    program = make_program(case, "hmc", num_chains=NUM_CHAINS, mesh=mesh, row_tile=row_tile, sharding=sharding)
    target, layout = program.target, program.target.position
    position = jax.jit(jax.vmap(layout.pack))(z)
    assert position.local.shape == (NUM_CHAINS, target.layout.padded_entries, 2)
    placed = place(program.mesh, jax.eval_shape(lambda: position), POSITION)

    @jax.jit
    def run(position: Any, data: Any) -> tuple[Any, Any]:
        density = target.bind(data).log_density(position)
        return density, jax.vmap(lambda g: layout.unpack(g, jnp.dtype("float64")))(density.gradient)

    found, by_latent = run(jax.device_put(position, placed), program.put_data(case.rows))
    # Behind the rows there is padding, whose gradient is zero.
    assert not np.asarray(found.gradient.local)[:, case.spec.num_rows :].any()
    return jax.device_get((found.log_prior, found.log_likelihood, by_latent))


LAYOUTS = [("named", (1, 1), 37), ("named", (2, 4), 4), ("shard_map", (1, 7), 37), ("shard_map", (2, 4), 4)]


@pytest.mark.parametrize(("sharding", "mesh", "row_tile"), LAYOUTS)
def test_the_density_of_constrained_local_latents(case, make_program, z, expected, sharding, mesh, row_tile) -> None:
    assert_near(evaluate(case, make_program, z, sharding, mesh, row_tile), expected)


def test_a_missing_jacobian_is_noticed(case, make_program, z, expected, monkeypatch) -> None:
    whole = Target.prior_and_latents

    def without(self: Target, position: Any) -> Any:
        z = self.position.unpack(position, jnp.dtype("float64"))
        return self.prior.log_prob(self.bijector.forward(z)), whole(self, position)[1]

    monkeypatch.setattr(Target, "prior_and_latents", without)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_near(evaluate(case, make_program, z, "named", (1, 1), 37), expected)


def latents_of_one_chain(target: Target, z: Mapping[str, jax.Array]) -> Any:
    return jax.jit(lambda z: target.constrain(target.position.pack({k: v[0] for k, v in z.items()})))(z)


def test_latents_are_positive_and_in_the_prior_s_axes(case, make_target, z) -> None:
    target = make_target(case, 4, 5)
    latents = latents_of_one_chain(target, z)
    assert latents["sizes"].shape == (2, case.spec.num_rows)
    assert all((v > 0).all() for v in latents.values())


def test_latents_keep_their_axes_with_the_padding_behind_them(case, make_target, z) -> None:
    target = make_target(case, 4, 5)
    latents = latents_of_one_chain(target, z)
    padded = target.pad_entries(latents)
    assert padded["sizes"].shape == (2, target.layout.padded_entries)
    np.testing.assert_array_equal(padded["sizes"][:, : case.spec.num_rows], latents["sizes"])
    assert not padded["sizes"][:, case.spec.num_rows :].any()
    np.testing.assert_array_equal(padded["spread"], latents["spread"])
