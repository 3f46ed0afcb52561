"""A normal distribution whose mean and scale are unknown."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Real
from pydantic import Field
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows

__all__ = ["NewModel", "Options"]

tfd = tfp.distributions


class Options(Settings):
    """Options of `new_model`."""

    prior_scale: float = Field(
        1.0, gt=0, le=1e6, description="Prior standard deviation of each mean, and of the scale."
    )


class NewModel(Model):
    """Rows ``x`` of shape (dimension,), independent N(mean, scale^2)."""

    pretty_name = "New model"
    # Words of analyses that the model can serve: docs/contracts/model.md.
    offers = ()
    options: Options

    def prior(self, data_spec: DataSpec) -> Prior:
        """Latents ``mean`` (dimension,) and ``scale`` (), which is positive."""
        zero = jnp.zeros((), data_spec.dtype)
        deviation = zero + self.options.prior_scale
        return tfd.JointDistributionNamed(
            {
                "mean": tfd.Sample(tfd.Normal(zero, deviation), data_spec.fields["x"].shape),
                "scale": tfd.HalfNormal(deviation),
            }
        )

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each row, in nats, shape (rows,)."""
        return self.predict(latents, rows).log_prob(rows["x"].astype(latents["mean"].dtype))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of a new observation for each row."""
        mean = jnp.broadcast_to(latents["mean"], inputs["x"].shape)
        return tfd.Independent(tfd.Normal(mean, latents["scale"]), 1)

    def outcome(self, rows: Rows) -> Real[Array, "rows dimension"]:
        """Return the observed vector of each row."""
        return rows["x"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return the latents themselves: they are identified."""
        del rows
        return dict(latents)
