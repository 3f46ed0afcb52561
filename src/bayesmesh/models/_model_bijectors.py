"""Maps from unconstrained space to latents, one bijector for each latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesmesh.models.base import Latents


class Maps:
    """A bijector of dicts by latent, made of one bijector of TFP for each.

    Args:
        bijectors: latent -> its map.
    """

    def __init__(self, bijectors: Mapping[str, Any]) -> None:
        self._bijectors = dict(bijectors)

    def forward(self, x: Latents) -> dict[str, Array]:
        """Return latents from unconstrained values."""
        return {k: self._bijectors[k].forward(v) for k, v in x.items()}

    def inverse(self, y: Latents) -> dict[str, Array]:
        """Return unconstrained values from latents."""
        return {k: self._bijectors[k].inverse(v) for k, v in y.items()}

    def forward_log_det_jacobian(self, x: Latents) -> Float[Array, ""]:
        """Return the log determinant of the Jacobian of `forward`, all axes of a latent being of its event."""
        terms = [self._bijectors[k].forward_log_det_jacobian(v, event_ndims=jnp.ndim(v)) for k, v in x.items()]
        return sum(terms[1:], start=jnp.asarray(terms[0], next(iter(x.values())).dtype))
