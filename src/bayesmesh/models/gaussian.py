"""The mean of a normal with known noise: the model whose posterior is known in closed form."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Real
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows
from bayesmesh.models.options import GaussianOptions as Options

tfd = tfp.distributions


class Gaussian(Model):
    """Rows ``x`` of shape (dimension,), independent N(mean, noise_scale^2); mean ~ N(0, prior_scale^2).

    Reads the field ``x`` and the constant ``noise_scale``.
    """

    pretty_name = "Normal mean"
    offers = ()
    options: Options

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the prior of the latent ``mean``, shape (dimension,)."""
        shape = data_spec.fields["x"].shape
        zero = jnp.zeros((), data_spec.dtype)
        normal = tfd.Normal(zero, zero + self.options.prior_scale)
        return tfd.JointDistributionNamed({"mean": tfd.Sample(normal, shape)})

    def described(self) -> dict[str, object]:
        """Return the assumptions of the model."""
        facts = {"Outcome": f"normal around the mean, with standard deviation {self.spec.constants['noise_scale']:g}"}
        return {"facts": {**facts, "Priors": f"each mean normal(0, {self.options.prior_scale:g})"}}

    def _noise(self, mean: Float[Array, "*rows dimension"]) -> Predictive:
        return tfd.Independent(tfd.Normal(mean, jnp.asarray(self.spec.constants["noise_scale"], mean.dtype)), 1)

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each row, in nats, shape (rows,)."""
        mean = latents["mean"]
        return self._noise(mean).log_prob(rows["x"].astype(mean.dtype))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of a new observation for each row."""
        mean = latents["mean"]
        return self._noise(jnp.broadcast_to(mean, inputs["x"].shape))

    def outcome(self, rows: Rows) -> Real[Array, "rows dimension"]:
        """Return the observed vector of each row."""
        return rows["x"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return the mean itself: it is identified."""
        return {"mean": latents["mean"]}
