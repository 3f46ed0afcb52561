"""Densities of counts and of positive numbers as differences that float32 can represent.

For a count of a million, ``y * eta - exp(eta)`` has eight digits, of which only the last ones matter. Here the log
density is that at the best predictor, a constant of the row or a smooth function of the shape, less a term for the
distance of the predictor from it.

Reference:
    Loader 2000, "Fast and accurate computation of binomial probabilities", for the expansions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float

Values = Float[Array, "..."]

_LARGE = 8.0
"""From here on, four terms of Stirling's series are exact to 1e-11."""

_FAR = 20.0
"""Differences of predictors beyond this are not small, and their exponentials may overflow."""

LOG_2_PI = 1.8378770664093453


def stirling_error(x: Values) -> Values:
    """Return the log gamma function less Stirling's formula, (x - 1/2) log(x) - x + log(2 pi) / 2.

    >>> [round(float(stirling_error(jnp.array(x))), 4) for x in (1.0, 10.0)]
    [0.0811, 0.0083]
    """
    large, small = jnp.maximum(x, _LARGE), jnp.minimum(x, _LARGE)
    square = jnp.square(1 / large)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square / 1680))) / large
    direct = gammaln(small) - ((small - 0.5) * jnp.log(small) - small + 0.5 * LOG_2_PI)
    return jnp.where(x < _LARGE, direct, series)


def poisson(y: Values, eta: Values) -> Values:
    """Return the log probability of counts with the log of the mean `eta`, less its value at a mean of `y`."""
    most = jnp.maximum(y, 1)
    apart = eta - jnp.log(most)
    return y * apart - most * jnp.expm1(apart) - (y == 0)


def negative_binomial(y: Values, eta: Values, shape: Values) -> Values:
    """Return the log probability of counts with variance mean + mean^2 / shape, less the term that `poisson` leaves out."""
    most = jnp.maximum(y, 1)
    spread = stirling_error(most + shape) - stirling_error(shape) - 0.5 * jnp.log1p(most / shape)
    above = spread - log_sum_excess(most, shape, eta - jnp.log(most))
    return jnp.where(y == 0, -shape * jax.nn.softplus(eta - jnp.log(shape)), above)


def binomial(y: Values, failures: Values, eta: Values) -> Values:
    """Return the log probability of successes with logit `eta`, less its value at a probability of ``y / (y + failures)``."""
    some, others = jnp.maximum(y, 1), jnp.maximum(failures, 1)
    inner = -log_sum_excess(some, others, eta - jnp.log(some / others))
    only = -(y + failures) * jax.nn.softplus(jnp.where(y > 0, -eta, eta))
    return jnp.where((y > 0) & (failures > 0), inner, only)


def log_sum_excess(a: Values, b: Values, apart: Values) -> Values:
    """Return (a + b) log((a exp(apart) + b) / (a + b)) - a apart, for positive numbers.

    The two terms differ from each other by little where one number is far larger than the other. Exchanging a and b, and the
    sign of `apart`, changes nothing, so both terms are made multiples of the smaller number.

    >>> [round(float(log_sum_excess(jnp.array(x), jnp.array(1e8), jnp.array(1e-3))), 8) for x in (2.0, 5.0)]
    [1e-06, 2.5e-06]
    """
    less, more = jnp.minimum(a, b), jnp.maximum(a, b)
    apart = jnp.where(a > b, -apart, apart)
    share = less / (less + more)
    is_far = apart > _FAR
    near = jnp.log1p(share * jnp.expm1(jnp.where(is_far, 0, apart)))
    far = jnp.logaddexp(jnp.log(share) + apart, jnp.log1p(-share))
    return (less + more) * jnp.where(is_far, far, near) - less * apart


def gamma(y: Values, eta: Values, shape: Values) -> Values:
    """Return the log density of positive numbers with the log of the mean `eta`."""
    log_y = jnp.log(y)
    apart = log_y - eta
    return 0.5 * (jnp.log(shape) - LOG_2_PI) - stirling_error(shape) - log_y + shape * (apart - jnp.expm1(apart))


def student_t(z: Values, nu: Values) -> Values:
    """Return the log density of Student's t at standardised values."""
    half = nu / 2
    about = half * jnp.log1p(0.5 / half) - 0.5 + stirling_error(half + 0.5) - stirling_error(half)
    return about - 0.5 * LOG_2_PI - (half + 0.5) * jnp.log1p(jnp.square(z) / nu)
