"""Counter-based random numbers of one transition: each is found by stream and index, not by a key of its own.

A kernel gets one key per chain and iteration. Folding it for every purpose, and then drawing, takes two hashes per purpose,
and XLA compiles each as a loop. Here a number is one hash, Threefry-2x32 (Salmon et al. 2011, doi:10.1145/2063384.2063405),
of the key, a stream and an index, so that all numbers of a stream are made at once. The hash is unrolled here, because on a
CPU the one in JAX is a loop that takes two to five times as long to compile; the bits are the same.

As `sampling.density.mesh` configures JAX, `jax.random` hashes stream 0 if it draws fewer than 2**32 numbers, so these numbers never
coincide with those of `jax.random` from the same key.
"""

from __future__ import annotations

import enum
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Key, UInt32

from bayesmesh.kernels.base import keep_computed

_ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
"""Rotations of the rounds before the odd and before the even injections of the key."""

_PARITY = 0x1BD11BDA
"""Mixed into the third word of the key."""


class Stream(enum.IntEnum):
    """Purpose of the numbers of a transition; stream 0 belongs to `jax.random`."""

    SHARED_MOMENTUM = 1
    LOCAL_MOMENTUM = 2
    ACCEPT = 3
    TREE = 4


_OF_JAX = 0
"""The stream of `jax.random`."""


def uniform(
    key: Key[Array, " chain"], stream: Stream, index: UInt32[Array, "#chain number"]
) -> Float[Array, "chain number"]:
    """Return uniform numbers in (0, 1), (chain, number) float64.

    Args:
        key: (chain,) keys of Threefry.
        stream: what they are for.
        index: which numbers of the stream, the same for all chains or separately for each.

    Raises:
        ValueError: the keys are of another generator.
    """
    return keep_computed(_to_uniform(_hash(key, stream, index), jnp.float64))


def normal(
    key: Key[Array, " chain"], stream: Stream, shape: tuple[int, ...], dtype: DTypeLike
) -> Float[Array, "chain ..."]:
    """Return standard normal numbers (chain, *shape), the first ones of a stream.

    A number depends on its index alone, so adding rows leaves the earlier numbers unchanged.

    Args:
        key: (chain,) keys of Threefry.
        stream: what they are for.
        shape: of one chain's numbers, fewer than 2**32.
        dtype: of the numbers. A float32 comes from 23 bits, and lies within ±5.3.

    Raises:
        ValueError: the keys are of another generator.
    """
    # Computed from the index along each axis, because reshaping a flat list would gather sharded rows.
    number = jnp.zeros((1, *shape), jnp.uint32)
    for axis in range(len(shape)):
        stride = np.uint32(math.prod(shape[axis + 1 :]))
        number = number + stride * jax.lax.broadcasted_iota(jnp.uint32, number.shape, axis + 1)
    return keep_computed(math.sqrt(2) * jax.lax.erf_inv(2 * _to_uniform(_hash(key, stream, number), dtype) - 1))


def fold(key: Key[Array, "..."], number: jax.Array | int) -> Key[Array, " chain"]:
    """Return the same keys as `jax.random.fold_in` of keys and numbers, (chain,); either may be ().

    Args:
        key: keys of Threefry.
        number: integers that are taken as uint32.

    Raises:
        ValueError: the keys are of another generator.
    """
    number = jnp.asarray(number).astype(jnp.uint32).reshape(-1, 1)
    words = _hash(key if key.ndim else jnp.broadcast_to(key, len(number)), _OF_JAX, number)
    return jax.random.wrap_key_data(keep_computed(jnp.concatenate(words, axis=1)), impl="threefry2x32")


def _hash(
    key: Key[Array, " chain"], stream: int, index: UInt32[Array, "#chain ..."]
) -> tuple[UInt32[Array, "chain ..."], UInt32[Array, "chain ..."]]:
    """Return two random words for every index."""
    words = jax.random.key_data(key)
    if words.shape[1:] != (2,):
        raise ValueError(
            f"keys of {jax.random.key_impl(key)} have {words.shape[1:]} words: make them by jax.random.key(seed, impl='threefry2x32')"
        )
    first, second = (words[:, i].reshape(-1, *[1] * (index.ndim - 1)) for i in range(2))
    schedule = (first, second, first ^ second ^ np.uint32(_PARITY))
    one, other = first + np.uint32(stream), second + index
    for injection in range(1, 6):
        for distance in _ROTATIONS[(injection - 1) % 2]:
            one = one + other
            other = one ^ (other << np.uint32(distance) | other >> np.uint32(32 - distance))
        one = one + schedule[injection % 3]
        other = other + schedule[(injection + 1) % 3] + np.uint32(injection)
    return one, other


def _to_uniform(words: tuple[UInt32[Array, "..."], UInt32[Array, "..."]], dtype: DTypeLike) -> Float[Array, "..."]:
    """Return the midpoint of one of 2**52 equal intervals of (0, 1), or of 2**23 below float64; never 0 or 1."""
    one, other = words
    if jnp.dtype(dtype) == jnp.float64:
        fraction = (other >> 12).astype(jnp.float64) + 0.5
        return (one.astype(jnp.float64) + fraction * 2.0**-20) * 2.0**-32
    return (((one >> 9).astype(jnp.float32) + 0.5) * 2.0**-23).astype(dtype)
