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
    apart = eta - jnp.log(most)
    near = jnp.log1p((most * jnp.expm1(jnp.minimum(apart, _FAR)) + (y == 0)) / (y + shape))
    far = jnp.logaddexp(eta, jnp.log(shape)) - jnp.log(y + shape)
    spread = stirling_error(y + shape) - stirling_error(shape) - 0.5 * jnp.log1p(y / shape)
    return y * apart - (y + shape) * jnp.where(apart > _FAR, far, near) + spread


def binomial(y: Values, trials: Values, eta: Values) -> Values:
    """Return the log probability of successes with logit `eta`, less its value at a probability of ``y / trials``."""
    is_inner = (y > 0) & (y < trials)
    some, all_ = jnp.where(is_inner, y, 1), jnp.where(is_inner, trials, 2)
    best = jnp.log(some) - jnp.log(all_ - some)
    apart = eta - best
    near = jnp.log1p(some / all_ * jnp.expm1(jnp.minimum(apart, _FAR)))
    far = jax.nn.softplus(eta) - jax.nn.softplus(best)
    inner = y * apart - trials * jnp.where(apart > _FAR, far, near)
    return jnp.where(is_inner, inner, -trials * jax.nn.softplus(jnp.where(y > 0, -eta, eta)))


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
