"""Find a prior whose draws do not follow its density, for example because a Jacobian is missing.

For draws z from a density p in unconstrained space, the gradient g of log p has mean 0 and z g has mean -1 (Stein 1981,
doi:10.1214/aos/1176345632).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Position
from bayesmesh.sampling.density.log_density import Target

NUM_DRAWS = 256
"""Number of prior draws."""

_MOST_ERRORS = 7.0
"""Number of standard errors beyond which a mean is wrong, even the largest over many coordinates."""


def unlike_draws(target: Target) -> str | None:
    """Return the latent whose draws fit its density worst, with what was seen; None if all fit."""

    def log_prior(position: Position) -> jax.Array:
        return target.prior_and_latents(position)[0]

    def terms(key: jax.Array) -> tuple[dict[str, jax.Array], ...]:
        position = target.sample_prior(key)
        z, slope = (target.position.unpack(x, jnp.dtype("float64")) for x in (position, jax.grad(log_prior)(position)))
        return dict(slope), {name: 1 + z[name] * slope[name] for name in z}

    def add(sums: list[jax.Array], key: jax.Array) -> tuple[list[jax.Array], None]:
        found = [x for term in terms(key) for x in (term, jax.tree.map(jnp.square, term))]
        return jax.tree.map(jnp.add, sums, found), None

    keys = jax.random.split(jax.random.key(2), NUM_DRAWS)
    none = [jax.tree.map(jnp.zeros_like, x) for term in jax.eval_shape(terms, keys[0]) for x in (term, term)]
    shift, shift_squares, width, width_squares = jax.device_get(jax.jit(lambda: jax.lax.scan(add, none, keys)[0])())
    worst, said = _MOST_ERRORS, None
    for sums, squares, wanted in (
        (shift, shift_squares, "slope"),
        (width, width_squares, "value times slope, plus 1,"),
    ):
        for name in sums:
            with np.errstate(invalid="ignore", divide="ignore"):
                mean, square = sums[name] / NUM_DRAWS, squares[name] / NUM_DRAWS
                errors = np.abs(mean) / np.sqrt((square - mean**2) / (NUM_DRAWS - 1))
            # A coordinate without a spread, or with draws at which nothing is finite, is uninformative.
            if (largest := np.where(np.isfinite(errors), errors, 0).max(initial=0)) > worst:
                worst, said = (
                    largest,
                    (
                        f"the draws of latent '{name}' are not those of its density: in unconstrained space the mean of"
                        f" {wanted} is {largest:.0f} standard errors from 0"
                    ),
                )
    return said
