"""Maps from unconstrained space to latents: a prior's own map, and one built from a bijector for each latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesmesh.models.base import Bijector, Latents, Prior


class Maps:
    """A bijector of dicts of latents, built from one TFP bijector for each latent.

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
        """Return the log determinant of the Jacobian of `forward`, with all axes of a latent as event axes."""
        terms = [self._bijectors[k].forward_log_det_jacobian(v, event_ndims=jnp.ndim(v)) for k, v in x.items()]
        return sum(terms[1:], start=jnp.asarray(terms[0], next(iter(x.values())).dtype))


def bijector_of(prior: Prior) -> Bijector:
    """Return a prior's own bijector.

    A joint distribution whose parts depend on each other samples itself to learn how many axes they have. Outside a
    program, each of about 25 operations of its samplers would be compiled, 0.7 s in all; here it samples while being
    traced. TFP's bijector rebuilds the parts from the values that it maps: only the shapes of those drawn here are read.
    """
    if not _draws_for_its_bijector(prior):
        return prior.experimental_default_event_space_bijector()
    made: list[Bijector] = []
    jax.eval_shape(lambda: made.append(prior.experimental_default_event_space_bijector()))
    return made[0]


def _draws_for_its_bijector(prior: Any) -> bool:
    """Return whether a prior is a TFP joint distribution with TFP's bijector that has not built its parts yet."""
    if getattr(prior, "_single_sample_distributions", None) != {}:
        return False
    of = type(prior)
    makers = of.experimental_default_event_space_bijector, of._default_event_space_bijector
    return all(each.__module__.startswith("tensorflow_probability.") for each in makers)
