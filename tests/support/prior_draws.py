"""Whether draws of a prior follow its density in unconstrained space, and come back from its map.

For draws z from a density p, the gradient g of log p has mean 0 and z g has mean -1 (Stein 1981,
doi:10.1214/aos/1176345632).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MOST_ERRORS = 6.0
"""Number of standard errors of a mean that is wrong."""


def unlike_draws(prior: Any, num_draws: int) -> list[str]:
    """Return what is wrong with each latent of a prior.

    Args:
        prior: with the methods of `bayesmesh.models.base.Prior`.
        num_draws: number of draws.
    """
    bijector = prior.experimental_default_event_space_bijector()
    keys = jax.random.split(jax.random.key(3), num_draws)
    drawn = jax.jit(jax.vmap(lambda key: dict(prior.sample(seed=key))))(keys)
    # Separate programs, because a bijector of TFP remembers the value of which it has returned the inverse.
    free = jax.jit(jax.vmap(lambda latents: dict(bijector.inverse(latents))))(drawn)

    def log_density(z: Any) -> jax.Array:
        return prior.log_prob(bijector.forward(z)) + bijector.forward_log_det_jacobian(z)

    def terms(z: Any) -> tuple[Any, Any, Any]:
        slope = dict(jax.grad(log_density)(z))
        return dict(bijector.forward(z)), slope, {name: 1 + z[name] * slope[name] for name in z}

    back, slope, width = jax.device_get(jax.jit(jax.vmap(terms))(free))
    wrong = []
    for name, values in drawn.items():
        is_same = np.isclose(back[name], values, 1e-5, 1e-6).reshape(num_draws, -1).all(axis=1)
        if not is_same.all():
            wrong.append(f"{name}: {num_draws - is_same.sum()} draws do not come back")
    for what, means in (("slope", slope), ("width", width)):
        for name, values in means.items():
            rows = values.reshape(num_draws, -1)
            if not np.isfinite(rows).all():
                wrong.append(f"{name}: {what} is not finite")
            errors = np.abs(rows.mean(0)) / (rows.std(0) / np.sqrt(num_draws) + 1e-12)
            if not (errors < MOST_ERRORS).all():
                wrong.append(f"{name}: {what} is {errors.max():.1f} standard errors from 0")
    return wrong


def has_mass_one(prior: Any) -> bool:
    """Return whether the density of a prior with one coordinate integrates to 1 over unconstrained space."""
    bijector = prior.experimental_default_event_space_bijector()
    (name,) = jax.eval_shape(lambda: dict(prior.sample(seed=jax.random.key(0))))
    grid = jnp.linspace(-40, 40, 40_001)

    def density(value: jax.Array) -> jax.Array:
        z = {name: value}
        return jnp.exp(prior.log_prob(bijector.forward(z)) + bijector.forward_log_det_jacobian(z))

    return bool(abs(jnp.nansum(jax.jit(jax.vmap(density))(grid)) * (grid[1] - grid[0]) - 1) < 1e-3)
