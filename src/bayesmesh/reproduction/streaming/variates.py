"""Uniform and normal float32 numbers from random bits, and an exponential, in elementwise operations.

Reference:
    Box and Muller 1958, "A note on the generation of random normal deviates", doi:10.1214/aoms/1177706645.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["LARGEST", "exponential", "normal_pair", "uniform"]

LARGEST = math.sqrt(64 * math.log(2))
"""No normal number is larger, 6.66: a true one is with probability 2.7e-11."""

_HALF_TURN, _SIGN = math.pi / 2, 0x80000000


_LOWEST, _MAGIC = -87.0, 1.5 * 2.0**23
_POWER_OF_TWO = (0.69314698, 0.24022242, 0.05550734, 0.00967151, 0.00132647)
"""2**f is 1 + f * (this polynomial), for f within 1/2 and with a relative error of 9.2e-8: least largest error."""


def exponential(x: jax.Array) -> jax.Array:
    """Return exp(x) of float32 numbers below 88, with a relative error below 3e-7 + 7e-8 |x|.

    Half the operations of the library's: numbers are rounded by adding a large one, whose last bits are then the
    exponent. Below -87 it stays at exp(-87), 1.6e-38.
    """
    x = jnp.where(x > jnp.float32(_LOWEST), x, jnp.float32(_LOWEST))
    per_log2 = jnp.float32(1 / math.log(2))
    shifted = x * per_log2 + jnp.float32(_MAGIC)
    part = x * per_log2 - (shifted - jnp.float32(_MAGIC))
    power = jnp.float32(_POWER_OF_TWO[-1])
    for factor in (*reversed(_POWER_OF_TWO[:-1]), 1.0):
        power = jnp.float32(factor) + part * power
    exponent = lax.bitcast_convert_type(shifted, jnp.uint32) << jnp.uint32(23)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(power, jnp.uint32) + exponent, jnp.float32)


def uniform(bits: jax.Array) -> jax.Array:
    """Return numbers in [0, 1] of 31 bits, rounded to float32; both ends have probability below 1e-7.

    >>> uniform(jnp.array([0, 1 << 31], jnp.uint32)).tolist()
    [0.0, 0.5]
    """
    # Signed, because processors convert signed integers in one operation.
    return (bits >> jnp.uint32(1)).astype(jnp.int32).astype(jnp.float32) * jnp.float32(2.0**-31)


def normal_pair(bits: jax.Array, more_bits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return two arrays of independent standard normal numbers.

    Radius and angle within a quarter turn come from 31 and 30 bits, the signs from two bits of their own: the
    distribution is exactly symmetric about 0, which is all that the Metropolis rule asks of a proposal. Sine and cosine
    are polynomials with an error below 1e-7.

    Args:
        bits: uint32, for the radius.
        more_bits: uint32 of the same shape, for the angle and the signs.
    """
    # The half keeps 0 out of the logarithm; where it matters, for small numbers, it is exact. The library's logarithm has
    # vector variants, without which LLVM takes only as many lanes as fit the widest type of the whole loop.
    radius = jnp.sqrt(-jnp.log(uniform(bits) + jnp.float32(2.0**-32)))
    part = (more_bits >> jnp.uint32(2)).astype(jnp.int32).astype(jnp.float32)
    sine, cosine = _sine_and_cosine(part * jnp.float32(_HALF_TURN * 2.0**-30) - jnp.float32(_HALF_TURN / 2))
    # cos(t + 45 degrees) is (cos t - sin t) / sqrt 2, and the square root of 2 is what the radius lacks.
    sign, other = more_bits << jnp.uint32(31), (more_bits << jnp.uint32(30)) & jnp.uint32(_SIGN)
    return _with_sign(radius * (cosine - sine), sign), _with_sign(radius * (cosine + sine), other)


def _sine_and_cosine(angle: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return sine and cosine of angles between -45 and 45 degrees, in radian: Taylor polynomials of degrees 9 and 8."""
    square = angle * angle
    sine, cosine = jnp.float32(1 / 362880), jnp.float32(1 / 40320)
    for over in (-5040, 120, -6, 1):
        sine = jnp.float32(1 / over) + square * sine
    for over in (-720, 24, -2, 1):
        cosine = jnp.float32(1 / over) + square * cosine
    return angle * sine, cosine


def _with_sign(number: jax.Array, sign: jax.Array) -> jax.Array:
    """Flip the sign of numbers where the first bit is set."""
    return lax.bitcast_convert_type(lax.bitcast_convert_type(number, jnp.uint32) ^ sign, jnp.float32)
