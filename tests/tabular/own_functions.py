"""Log densities of tables, as users write them for `log_density`."""

from __future__ import annotations

from typing import Any

from tensorflow_probability.substrates import jax as tfp

tfd = tfp.distributions


def growth(latents: Any, data: Any) -> Any:
    """Length of animals that grow towards a limit."""
    mean = latents["top"] - latents["gap"] * latents["rate"] ** data["age"]
    return tfd.Normal(mean, latents["sigma"]).log_prob(data["length"]).sum()


def autoregression(latents: Any, data: Any) -> Any:
    """A series given its two values before."""
    y, lags = data["y"], latents["lags"]
    mean = latents["level"] + lags[0] * y[1:-1] + lags[1] * y[:-2]
    return tfd.Normal(mean, latents["noise"]).log_prob(y[2:]).sum()


def schools(latents: Any, data: Any) -> Any:
    """Effects around their mean in units of their spread."""
    effect = latents["mean"] + latents["spread"] * latents["standardised"]
    return tfd.Normal(effect, data["error"]).log_prob(data["effect"]).sum()
