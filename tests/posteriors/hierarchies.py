"""Hierarchical models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Predictive, Rows
from posteriors.base import Posterior, flat, half_normal, joint, normal

tfd = tfp.distributions


class EightSchools(Posterior):
    """Eight schools (Rubin 1981), effects around their mean in units of their spread."""

    name = pretty_name = "eight schools, non-centred"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        effects = np.array([[28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]])
        return {"y": effects, "sd": np.array([[15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]])}

    def prior(self, data_spec: DataSpec) -> Any:
        spread = tfd.HalfCauchy(jnp.zeros((), data_spec.dtype), 5.0)
        return joint(mean=normal(data_spec, 0.0, 5.0), spread=spread, standardised=normal(data_spec, 0.0, 1.0, 8))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        effect = latents["mean"] + latents["spread"] * latents["standardised"]
        return tfd.Normal(effect[None], inputs["sd"])


class EightSchoolsCentred(EightSchools):
    """The same with the effects themselves as latents: a funnel."""

    name = pretty_name = "eight schools, centred"
    hazard = "funnel"

    def prior(self, data_spec: DataSpec) -> Any:
        zero = jnp.zeros((), data_spec.dtype)
        return joint(
            mean=normal(data_spec, 0.0, 5.0),
            spread=tfd.HalfCauchy(zero, 5.0),
            effect=lambda mean, spread: tfd.Sample(tfd.Normal(mean, spread), 8),
        )

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        return tfd.Normal(latents["effect"][None], inputs["sd"])


class Radon(Posterior):
    """Radon in 460 houses of 40 counties: an intercept a county, one slope for the floor."""

    name = pretty_name = "radon"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(9)
        county = np.sort(np.concatenate([np.repeat(np.arange(40), 4), rng.integers(0, 40, 300)])).astype(np.int32)
        floor = (rng.uniform(size=460) < 0.17).astype(float)
        y = rng.normal(1.5, 0.35, 40)[county] - 0.65 * floor + rng.normal(0, 0.75, 460)
        return {"y": y, "county": county, "floor": floor}

    def prior(self, data_spec: DataSpec) -> Any:
        return joint(
            mean=flat(data_spec),
            slope=flat(data_spec),
            spread=half_normal(data_spec, 1e6),
            noise=half_normal(data_spec, 1e6),
            intercept=lambda mean, spread: tfd.Sample(tfd.Normal(mean, spread), 40),
        )

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        loc = latents["intercept"][inputs["county"]] + latents["slope"] * inputs["floor"]
        return tfd.Normal(loc, latents["noise"])


class BetaBinomial(Posterior):
    """Tumours in 70 groups of rats (Tarone 1982), simulated: the rate of a group is summed out."""

    name = pretty_name = "beta-binomial"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng = np.random.default_rng(10)
        size = rng.integers(10, 50, 70)
        return {"y": rng.binomial(size, rng.beta(2.4, 14.0, 70)).astype(float), "size": size.astype(float)}

    def prior(self, data_spec: DataSpec) -> Any:
        zero = jnp.zeros((), data_spec.dtype)
        return joint(rate=tfd.Uniform(zero, zero + 1), concentration=half_normal(data_spec, 100.0))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        rate, concentration = latents["rate"], latents["concentration"]
        return tfd.BetaBinomial(inputs["size"], rate * concentration, (1 - rate) * concentration)
