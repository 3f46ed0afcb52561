"""Shapes that samplers find hard, and a mixture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Predictive, Rows
from posteriors.base import Posterior, half_normal, joint, normal

tfd = tfp.distributions


class Mixture(Posterior):
    """Two normals of which the first has the smaller mean, 200 rows."""

    name = pretty_name = "mixture, ordered means"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(15)
        return {"y": np.where(rng.uniform(size=200) < 0.4, rng.normal(-2.75, 1, 200), rng.normal(2.75, 1, 200))}

    def prior(self, data_spec: DataSpec) -> Any:
        five = jnp.asarray(5.0, data_spec.dtype)
        return joint(
            lower=normal(data_spec, 0.0, 2.0),
            gap=half_normal(data_spec, 4.0),
            noise=half_normal(data_spec, 2.0, 2),
            share=tfd.Beta(five, five),
        )

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        means = latents["lower"] + latents["gap"] * jnp.arange(2, dtype=latents["gap"].dtype)
        num_rows = inputs["y"].shape[0]
        share = jnp.stack([latents["share"], 1 - latents["share"]])
        mixture = tfd.Categorical(probs=jnp.broadcast_to(share, (num_rows, 2)))
        return tfd.MixtureSameFamily(mixture, tfd.Normal(means, latents["noise"]))


class _Prior(Posterior):
    """One row that says nothing: the posterior is the prior."""

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        return {"y": np.zeros(1)}

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(jnp.zeros_like(inputs["y"]), 1.0)


class Funnel(_Prior):
    """Neal's funnel in ten dimensions (2003)."""

    name = pretty_name = "funnel"
    hazard = "funnel"

    def prior(self, data_spec: DataSpec) -> Any:
        return joint(
            v=normal(data_spec, 0.0, 3.0),
            x=lambda v: tfd.Sample(tfd.Normal(jnp.zeros_like(v), jnp.exp(v / 2)), 9),
        )


class IllConditioned(_Prior):
    """A normal in 100 dimensions, rotated, with standard deviations from 0.1 to 10."""

    name = pretty_name = "ill-conditioned normal"

    @staticmethod
    def factor() -> np.ndarray:
        """Return a square root of the covariance, (100, 100), lower triangular."""
        rotation, _ = np.linalg.qr(np.random.default_rng(16).normal(size=(100, 100)))
        covariance = (rotation * np.logspace(-2, 2, 100)) @ rotation.T
        return np.linalg.cholesky((covariance + covariance.T) / 2)

    def _half(self, dtype: Any) -> Any:
        """Return the normal with twice the covariance, whose density times itself has the covariance."""
        return tfd.MultivariateNormalTriL(jnp.zeros(100, dtype), jnp.asarray(2**0.5 * self.factor(), dtype))

    def prior(self, data_spec: DataSpec) -> Any:
        return joint(x=self._half(data_spec.dtype))

    def log_likelihood(self, latents: Latents, rows: Rows) -> jax.Array:
        return jnp.broadcast_to(self._half(latents["x"].dtype).log_prob(latents["x"]), rows["y"].shape)
