"""Two float32 numbers in one uint64: a loop body with one output is compiled to one loop, with several to several.

XLA's CPU backend fuses elementwise operations into one loop for each output, and computes what two outputs share twice,
or writes it to memory. Here the shared part is all of the work.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["pack", "unpack"]

_SHIFT = 32


def pack(high: jax.Array, low: jax.Array) -> jax.Array:
    """Return the bits of two float32 arrays as one uint64 array.

    >>> with jax.enable_x64(True):
    ...     numbers = unpack(pack(jnp.float32(-1.5), jnp.float32(1e-38)))
    ...     [bool(number == given) for number, given in zip(numbers, (jnp.float32(-1.5), jnp.float32(1e-38)))]
    [True, True]
    """
    bits = (lax.bitcast_convert_type(each, jnp.uint32).astype(jnp.uint64) for each in (high, low))
    return (next(bits) << jnp.uint64(_SHIFT)) | next(bits)


def unpack(packed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the two arrays."""
    halves = (packed >> jnp.uint64(_SHIFT)).astype(jnp.uint32), packed.astype(jnp.uint32)
    return lax.bitcast_convert_type(halves[0], jnp.float32), lax.bitcast_convert_type(halves[1], jnp.float32)
