"""Outcomes with heavy tails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import Predictive, Rows
from bayesmesh.models.glm import densities
from bayesmesh.models.glm.families import _texts as texts
from bayesmesh.models.glm.families._cdf import log_beta_below, log_complement
from bayesmesh.models.glm.families.base import Parameter, Parameters, Predictor, Values, Words
from bayesmesh.models.glm.families.normal import Normal

tfd = tfp.distributions


class StudentT(Normal):
    """Student's t with ``nu`` degrees of freedom and scale ``sigma``."""

    parameters: ClassVar[Mapping[str, Parameter]] = {
        "sigma": Parameter("exponential({rate})"),
        "nu": Parameter("gamma(2, 0.1)"),
    }
    words = Words("Student's t, with scale sigma and nu degrees of freedom", "identity: the predictor is the centre of {y}", "in the unit of {y}", "difference", "the centre of {y}")  # fmt: skip
    remedies: ClassVar[Mapping[str, str]] = {"binary": texts.BINARY, "counts": texts.COUNTS, "skewed": texts.LOG_OUTCOME, "tails": texts.TRANSFORM, "wide": texts.TRANSFORM, "narrow": texts.TRANSFORM, "uneven": texts.UNEVEN, "shape": texts.TRANSFORM}  # fmt: skip

    def log_density(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        sigma = parameters["sigma"]
        return densities.student_t((rows["outcome"] - eta) / sigma, parameters["nu"]) - jnp.log(sigma)

    def log_cdf(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        return self.log_survival(2 * eta - y, eta, rows, parameters)

    def log_survival(self, y: Values, eta: Predictor, rows: Rows, parameters: Parameters) -> Float[Array, " rows"]:
        z, nu = (y - eta) / parameters["sigma"], parameters["nu"]
        # At the centre, the argument of the beta function is 1, where its slope is infinite.
        square = jnp.maximum(jnp.square(z), jnp.finfo(z.dtype).tiny)
        tail = log_beta_below(nu / 2, jnp.full_like(nu, 0.5), nu / (nu + square)) - jnp.log(2.0)
        return jnp.where(z > 0, tail, log_complement(tail))

    def predict(self, eta: Predictor, rows: Rows, parameters: Parameters) -> Predictive:
        return tfd.StudentT(parameters["nu"], eta, parameters["sigma"])
