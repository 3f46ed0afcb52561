"""Alignment of local latents, which have one entry per row or per group of rows, with the rows of a block."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.models.base import Latents, Model


def align_local(model: Model, draw: Latents, entries: jax.Array | np.ndarray) -> dict[str, jax.Array]:
    """Return the latents of a draw, with local ones aligned with rows.

    Args:
        model: names its local latents and the axis of their entries.
        draw: latents of one draw, local ones with all entries.
        entries: (row,), entry to which each row belongs.
    """
    return {**draw, **{k: jnp.take(draw[k], entries, axis=axis) for k, axis in model.local_latents.items()}}
