"""Products of byte matrices with float32 matrices on tensor cores, with exact terms and float32 sums.

bfloat16 holds every byte exactly, and a float32 number is the sum of three bfloat16 numbers, so three bfloat16 products with
float32 sums give the product (after Ootomo and Yokota 2022, "Recovering single precision accuracy from Tensor Cores").
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

_BLOCK_ROWS = 4096
"""Rows of a partial sum: tensor cores truncate sums instead of rounding them, which would bias a long sum."""


def are_bytes(values: Array) -> bool:
    """Return whether bfloat16 represents every value of the array's dtype."""
    return values.dtype in (jnp.uint8, jnp.int8)


def times(values: Integer[Array, "rows k"], factor: Float[Array, "k n"]) -> Float[Array, "rows n"]:
    """Return the product of bytes and float32 numbers.

    Sums over columns are not split: each block of columns would write the product once more. Over the 784 pixels of
    MNIST, the relative error of the gradient is 5e-6.
    """
    return _add_parts(_dot(values, _in_three(factor), ((1,), (0,)), ((), ())))


def transposed_times(values: Integer[Array, "rows k"], factor: Float[Array, "rows n"]) -> Float[Array, "k n"]:
    """Return the product of the transposed bytes and float32 numbers, summed in blocks of rows."""
    rows = len(values)
    blocks = max(1, -(-rows // _BLOCK_ROWS))
    each = -(-rows // blocks)

    def cut(x: Array) -> Array:
        return jnp.pad(x, ((0, blocks * each - rows), (0, 0))).reshape(blocks, each, x.shape[1])

    partial = _dot(cut(values), cut(_in_three(factor)), ((1,), (1,)), ((0,), (0,)))
    return _add_parts(partial.sum(0))


def _in_three(factor: Float[Array, "m n"]) -> Float[Array, "m parts"]:
    """Return three bfloat16 matrices side by side whose sum is the factor."""
    # The compiler might optimise away a conversion there and back.
    high = jax.lax.reduce_precision(factor, exponent_bits=8, mantissa_bits=7)
    middle = jax.lax.reduce_precision(factor - high, exponent_bits=8, mantissa_bits=7)
    return jnp.concatenate([high, middle, factor - high - middle], axis=-1).astype(jnp.bfloat16)


def _dot(left: Array, right: Array, contracted: tuple[tuple[int], tuple[int]], batch: tuple[tuple[int, ...], tuple[int, ...]]) -> Array:  # fmt: skip
    # XLA has no such product on CPUs, where the tests run.
    narrow = jnp.bfloat16 if jax.default_backend() == "gpu" else jnp.float32
    numbers = (contracted, batch)
    return jax.lax.dot_general(
        left.astype(narrow), right.astype(narrow), numbers, preferred_element_type=jnp.float32
    )  # fmt: skip


def _add_parts(product: Float[Array, "m parts"]) -> Float[Array, "m n"]:
    """Return the sum of the three products, the smallest first."""
    high, middle, low = jnp.split(product, 3, axis=-1)
    return low + middle + high
