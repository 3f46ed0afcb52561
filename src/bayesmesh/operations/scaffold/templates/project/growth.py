"""A line through the heights of trees, with errors that may be large."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float, Real
from pydantic import Field
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import DataSpec, Latents, Model, Predictive, Prior, Rows

__all__ = ["Growth", "Options"]

tfd = tfp.distributions


class Options(Settings):
    """Options of the model, which experiments set under `model.options`."""

    prior_scale: float = Field(10.0, gt=0, le=1e6, description="Prior standard deviation of a height, in metres.")


class Growth(Model):
    """``height`` of each row from its ``age``, with errors of Student's t distribution."""

    pretty_name = "Growth of trees"
    # Words of analyses that the model can serve.
    offers = ()
    options: Options

    def prior(self, data_spec: DataSpec) -> Prior:
        """Latents ``intercept``, ``slope`` and ``scale``, which is positive."""
        zero = jnp.zeros((), data_spec.dtype)
        deviation = zero + self.options.prior_scale
        return tfd.JointDistributionNamed(
            {
                "intercept": tfd.Normal(zero, deviation),
                "slope": tfd.Normal(zero, deviation),
                "scale": tfd.HalfNormal(deviation),
            }
        )

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each row, in nats."""
        return self.predict(latents, rows).log_prob(rows["height"].astype(latents["slope"].dtype))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of the height of each row."""
        age = inputs["age"].astype(latents["slope"].dtype)
        return tfd.StudentT(4, latents["intercept"] + latents["slope"] * age, latents["scale"])

    def outcome(self, rows: Rows) -> Real[Array, " rows"]:
        """Return the observed height of each row."""
        return rows["height"]

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return the quantities on which convergence is assessed: here the latents, all of which are identified."""
        del rows
        return dict(latents)
