"""Series: one row is one series, because its points depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.base import DataSpec, Latents, Predictive, Rows
from posteriors.base import Posterior, flat, flat_positive, half_normal, joint, normal

tfd = tfp.distributions


class Arma(Posterior):
    """ARMA(1, 1) over 200 steps."""

    name = pretty_name = "ARMA(1, 1)"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        shock = np.random.default_rng(11).normal(0, 0.15, 201)
        y = np.zeros(201)
        for t in range(1, 201):
            y[t] = 0.1 + 0.75 * y[t - 1] + shock[t] + 0.4 * shock[t - 1]
        return {"y": y[None, 1:]}

    def prior(self, data_spec: DataSpec) -> Any:
        noise = tfd.HalfCauchy(jnp.zeros((), data_spec.dtype), 2.5)
        wide = {name: normal(data_spec, 0.0, sd) for name, sd in (("mean", 10.0), ("ar", 2.0), ("ma", 2.0))}
        return joint(noise=noise, **wide)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        mean, ar, ma = latents["mean"], latents["ar"], latents["ma"]

        def step(carry: Any, y: Any) -> Any:
            before, error = carry
            expected = mean + ar * before + ma * error
            return (y, y - expected), expected

        y = inputs["y"].T
        first = jnp.broadcast_to(mean + ar * mean, y[0].shape)
        _, later = jax.lax.scan(step, (y[0], y[0] - first), y[1:])
        return tfd.Normal(jnp.concatenate([first[None], later]).T, latents["noise"])


class Garch(Posterior):
    """GARCH(1, 1) over 300 steps; the two weights are uniform below the line on which the variance has no mean."""

    name = pretty_name = "GARCH(1, 1)"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng, y, variance = np.random.default_rng(12), np.zeros(300), 1.0
        for t in range(300):
            y[t] = 5 + np.sqrt(variance) * rng.normal()
            variance = 0.4 + 0.35 * (y[t] - 5) ** 2 + 0.4 * variance
        return {"y": y[None]}

    def prior(self, data_spec: DataSpec) -> Any:
        weights = tfd.Dirichlet(jnp.ones(3, data_spec.dtype))
        return joint(mean=flat(data_spec), base=flat_positive(data_spec), weights=weights)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        base, weights = latents["base"], latents["weights"]

        def step(variance: Any, square: Any) -> Any:
            return base + weights[0] * square + weights[1] * variance, variance

        square = jnp.square(inputs["y"].T - latents["mean"])
        _, variance = jax.lax.scan(step, jnp.ones_like(square[0]), square)
        return tfd.Normal(latents["mean"], jnp.sqrt(variance).T)


class TwoStates(Posterior):
    """A hidden Markov chain of two states with normal emissions over 150 steps, its states summed out."""

    name = pretty_name = "hidden Markov, two states"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        rng, state, states = np.random.default_rng(13), 0, []
        for _ in range(150):
            state = state if rng.uniform() < (0.85, 0.7)[state] else 1 - state
            states.append(state)
        return {"y": rng.normal(np.where(states, 9.0, 3.0), 1.5)[None]}

    def prior(self, data_spec: DataSpec) -> Any:
        rows = tfd.Sample(tfd.Dirichlet(jnp.ones(2, data_spec.dtype)), 2)
        return joint(
            transition=rows,
            low=normal(data_spec, 3.0, 1.0),
            high=normal(data_spec, 10.0, 1.0),
            noise=flat_positive(data_spec),
        )

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        means = jnp.stack([latents["low"], latents["high"]])
        density = jnp.exp(tfd.Normal(means, latents["noise"]).log_prob(inputs["y"].T[..., None]) + 20.0)

        def step(predicted: Any, density: Any) -> Any:
            filtered = predicted * density + 1e-30
            return (filtered / filtered.sum(-1, keepdims=True)) @ latents["transition"], predicted

        _, predicted = jax.lax.scan(step, jnp.full_like(density[0], 0.5), density)
        mixture = tfd.Categorical(probs=jnp.moveaxis(predicted, 0, 1))
        return tfd.MixtureSameFamily(mixture, tfd.Normal(means, latents["noise"]))


class GaussianProcess(Posterior):
    """Regression on 25 points with a Gaussian process: length, amplitude and noise."""

    name = pretty_name = "Gaussian process"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        x = np.linspace(-5, 5, 25)
        return {"x": x[None], "y": (2 * np.sin(0.8 * x) + np.random.default_rng(14).normal(0, 0.4, 25))[None]}

    def prior(self, data_spec: DataSpec) -> Any:
        length = tfd.Gamma(jnp.asarray(5.0, data_spec.dtype), 2.0)
        return joint(length=length, amplitude=half_normal(data_spec, 3.0), noise=half_normal(data_spec, 1.0))

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        x = inputs["x"]
        distance = (x[:, :, None] - x[:, None, :]) / latents["length"]
        kernel = jnp.square(latents["amplitude"]) * jnp.exp(-0.5 * jnp.square(distance))
        covariance = kernel + (jnp.square(latents["noise"]) + 1e-4) * jnp.eye(x.shape[1], dtype=x.dtype)[None]
        return tfd.MultivariateNormalTriL(scale_tril=jnp.linalg.cholesky(covariance))


class LotkaVolterra(Posterior):
    """Pelts of lynxes and hares in 1900 to 1920, thousands (Hudson's Bay Company), as in Stan's case study."""

    name = pretty_name = "Lotka-Volterra"
    hazard = "second mode"

    @classmethod
    def rows(cls) -> Mapping[str, np.ndarray]:
        hare = [
            30.0,
            47.2,
            70.2,
            77.4,
            36.3,
            20.6,
            18.1,
            21.4,
            22.0,
            25.4,
            27.1,
            40.3,
            57.0,
            76.6,
            52.3,
            19.5,
            11.2,
            7.6,
        ]
        lynx = [4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4, 8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8]
        pelts = np.array([[*hare, 14.6, 16.2, 24.7], [*lynx, 9.7, 10.1, 8.6]])
        return {"y": np.log(pelts.T)[None]}

    def prior(self, data_spec: DataSpec) -> Any:
        def log_normal(*medians: float, sd: float) -> Any:
            loc = jnp.log(jnp.asarray(medians, data_spec.dtype))
            return tfd.Independent(tfd.LogNormal(loc, jnp.full_like(loc, sd)), 1)

        return joint(
            growth=log_normal(1.0, 1.0, sd=0.5),
            contact=log_normal(0.05, 0.05, sd=0.8),
            begin=log_normal(10.0, 10.0, sd=1.0),
            noise=log_normal(np.exp(-1), np.exp(-1), sd=1.0),
        )

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        (birth, death), (eaten, fed) = latents["growth"], latents["contact"]

        def speed(z: Any) -> Any:
            # Of the logarithms of both populations, which stay positive then.
            hare, lynx = jnp.exp(jnp.clip(z, -20.0, 12.0))
            return jnp.stack([birth - eaten * lynx, fed * hare - death])

        def step(z: Any, _: None) -> Any:
            h = 0.1
            one = speed(z)
            two = speed(z + h / 2 * one)
            three = speed(z + h / 2 * two)
            return z + h / 6 * (one + 2 * two + 2 * three + speed(z + h * three)), z

        _, path = jax.lax.scan(step, jnp.log(latents["begin"]), None, length=201)
        return tfd.Normal(path[None, ::10], latents["noise"])
