"""Maps from unconstrained space to latents, one bijector for each latent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesmesh.models.base import Bijector, Latents, Prior


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


def bijector_of(prior: Prior) -> Bijector:
    """Return a prior's own bijector.

    A joint distribution whose parts depend on each other draws from itself to know them, outside of any program: each of some
    25 operations of its samplers is compiled, 0.7 s in all. Here parts are made for latents at the origin of unconstrained space,
    and kept where TFP looks for parts that it has made.
    """
    joint: Any = prior
    # Of other priors there is no such place, and of joint distributions with independent parts it is full.
    if getattr(joint, "_single_sample_distributions", None) == {}:
        joint._get_single_sample_distributions(candidate_dists=_parts_at_origin(joint))
    return prior.experimental_default_event_space_bijector()


def _parts_at_origin(prior: Any) -> list[Any]:
    """Return the distributions of a joint distribution's latents, each given what stands for those before it."""
    parts: list[Any] = []
    making, value = prior._model_coroutine(), None
    # The joint distribution knows its number of parts only once it has all of them.
    while True:
        try:
            made = making.send(value)
        except StopIteration:
            return parts
        part = made.distribution if type(made).__name__ == "Root" else made
        parts.append(part)
        value = _at_origin(part)


def _at_origin(part: Any) -> Any:
    """Return a latent at the origin of unconstrained space, or a draw if it has no such space or several arrays."""
    bijector: Any = bijector_of(part)
    if bijector is None or not jax.tree_util.all_leaves([part.dtype]):
        return part.sample(seed=jax.random.key(0))
    return bijector.forward(jnp.zeros(tuple(bijector.inverse_event_shape(part.event_shape)), part.dtype))
