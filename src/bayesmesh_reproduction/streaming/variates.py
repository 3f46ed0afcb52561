"""Random bits, uniform and normal float32 numbers, and an exponential: elementwise operations that XLA fuses.

A generator without state needs no memory traffic, gives the same numbers however chains are spread over devices, and
lets a run continue where another ended.

References:
    Philox 4x32: Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3",
    doi:10.1145/2063384.2063405; the round function in section 3.3, the constants in table 3. The authors found no failure
    in BigCrush with 7 rounds or more; 10 is their safe choice.
    Normal numbers: Box and Muller 1958, "A note on the generation of random normal deviates",
    doi:10.1214/aoms/1177706645.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)

Words = tuple[jax.Array, jax.Array, jax.Array, jax.Array]

LARGEST = math.sqrt(64 * math.log(2))
"""Largest normal number that can occur, 6.66; an exact one exceeds it with probability 2.7e-11."""

_HALF_TURN, _SIGN = math.pi / 2, 0x80000000

_LOWEST, _MAGIC = -87.0, 1.5 * 2.0**23
_POWER_OF_TWO = (0.69314698, 0.24022242, 0.05550734, 0.00967151, 0.00132647)
"""Minimax coefficients: 2**f is 1 + f * (this polynomial) for f within 1/2, with a relative error of 9.2e-8."""


def philox4x32(counter: Words, key: tuple[jax.Array | int, jax.Array | int], rounds: int = ROUNDS) -> Words:
    """Return 128 random bits for each counter.

    Requires `jax_enable_x64`, because the products have 64 bits.

    Args:
        counter: four arrays of uint32, of one shape or scalars.
        key: two arrays of uint32, or two numbers known at compile time.
        rounds: number of mixing rounds.

    Returns:
        Four arrays of uint32.

    >>> with jax.enable_x64(True):
    ...     zero = jnp.uint32(0)
    ...     [f"{int(word):08x}" for word in philox4x32((zero,) * 4, (zero, zero))]
    ['6627e8d5', 'e169c58d', 'bc57ac4c', '9b00dbd8']
    """
    a, b, c, d = counter
    first, second = (jnp.uint32(word) for word in key)
    for number in range(rounds):
        if number:
            first, second = first + jnp.uint32(_WEYL[0]), second + jnp.uint32(_WEYL[1])
        (high_a, low_a), (high_c, low_c) = _multiply(_MULTIPLIERS[0], a), _multiply(_MULTIPLIERS[1], c)
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
    return a, b, c, d


def _multiply(constant: int, word: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the high and the low 32 bits of a product."""
    product = word.astype(jnp.uint64) * jnp.uint64(constant)
    return (product >> jnp.uint64(32)).astype(jnp.uint32), product.astype(jnp.uint32)


def exponential(x: jax.Array) -> jax.Array:
    """Return exp(x) of float32 numbers below 88, with a relative error below 3e-7 + 7e-8 |x|.

    It takes half the operations of the library function: adding a large number rounds, and the last bits of the sum are the
    exponent. Below -87 the result stays at exp(-87), 1.6e-38.
    """
    x = jnp.where(x > jnp.float32(_LOWEST), x, jnp.float32(_LOWEST))
    per_log2 = jnp.float32(1 / math.log(2))
    shifted = x * per_log2 + jnp.float32(_MAGIC)
    part = x * per_log2 - (shifted - jnp.float32(_MAGIC))
    power = _polynomial(part, *reversed(_POWER_OF_TWO), 1.0)
    exponent = lax.bitcast_convert_type(shifted, jnp.uint32) << jnp.uint32(23)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(power, jnp.uint32) + exponent, jnp.float32)


def _polynomial(x: jax.Array, *coefficients: float) -> jax.Array:
    """Return a polynomial by Horner's rule; the coefficient of the highest power comes first."""
    value = jnp.float32(coefficients[0])
    for coefficient in coefficients[1:]:
        value = jnp.float32(coefficient) + x * value
    return value


def uniform(bits: jax.Array) -> jax.Array:
    """Return numbers in [0, 1] from 31 bits, rounded to float32; both ends have probability below 1e-7.

    >>> uniform(jnp.array([0, 1 << 31], jnp.uint32)).tolist()
    [0.0, 0.5]
    """
    # Signed, because processors convert signed integers in one operation.
    return (bits >> jnp.uint32(1)).astype(jnp.int32).astype(jnp.float32) * jnp.float32(2.0**-31)


def normal_pair(bits: jax.Array, more_bits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two arrays of independent standard normal numbers.

    The radius uses 31 bits, the angle within a quarter turn 30, and the signs two further bits. The distribution is
    therefore exactly symmetric about 0, the only property of a proposal that the Metropolis rule needs. Sine and cosine are
    polynomials with an error below 1e-7.

    Args:
        bits: uint32, for the radius.
        more_bits: uint32 of the same shape, for the angle and the signs.
    """
    # Adding half a unit keeps 0 out of the logarithm; for small numbers, where it matters, the sum is exact. The logarithm
    # of the library has vector variants, without which LLVM uses only as many lanes as fit the widest type of the loop.
    radius = jnp.sqrt(-jnp.log(uniform(bits) + jnp.float32(2.0**-32)))
    part = (more_bits >> jnp.uint32(2)).astype(jnp.int32).astype(jnp.float32)
    angle = part * jnp.float32(_HALF_TURN * 2.0**-30) - jnp.float32(_HALF_TURN / 2)
    # Taylor polynomials of degrees 9 and 8, for angles between -45 and 45 degrees.
    square = angle * angle
    sine = angle * _polynomial(square, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0)
    cosine = _polynomial(square, 1 / 40320, -1 / 720, 1 / 24, -1 / 2, 1.0)
    # cos(t + 45 degrees) is (cos t - sin t) / sqrt 2; the radius lacks that factor of sqrt 2.
    sign, other = more_bits << jnp.uint32(31), (more_bits << jnp.uint32(30)) & jnp.uint32(_SIGN)
    return _with_sign(radius * (cosine - sine), sign), _with_sign(radius * (cosine + sine), other)


def _with_sign(number: jax.Array, sign: jax.Array) -> jax.Array:
    """Flip the sign of numbers where the first bit of `sign` is set."""
    return lax.bitcast_convert_type(lax.bitcast_convert_type(number, jnp.uint32) ^ sign, jnp.float32)
