"""Functions that options of models name, as a user's own module would hold them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

tfd = tfp.distributions


def next_values(latents: Any, data: Any) -> Any:
    """Return the distribution of each value given the one before; the first has the mean before it."""
    y = data["emissions"]
    before = jnp.concatenate([latents["mean"][None], y[:-1]])
    loc = latents["mean"] + latents["slope"] * (before - latents["mean"])
    return tfd.Independent(tfd.Normal(loc, latents["noise"]), 1)


def autoregression(latents: Any, data: Any) -> Any:
    """Return the log density of a series."""
    return next_values(latents, data).log_prob(data["emissions"])


def last_value(latents: Any, data: Any) -> Any:
    """Return a summary that the data enter."""
    return {"last": latents["mean"] * data["emissions"][-1]}


def several(latents: Any, data: Any) -> Any:
    """Return one value for each step, which a log density must not."""
    return latents["mean"] * data["emissions"]
