"""Logs of incomplete gamma and beta functions, which stay finite in the tails."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaincc, gammaln
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.glm.families._links import log1mexp

Values = Float[Array, "..."]

_NUM_TERMS = 12
"""Terms of a series before the rest of it is taken as geometric."""


def _log_or(value: Values, tail: Values) -> Values:
    """Return the log of a value, or `tail`, its asymptotic form, where the value underflows."""
    least = jnp.finfo(value.dtype).tiny * 1e4
    return jnp.where(value > least, jnp.log(jnp.maximum(value, least)), tail)


def _log_sum(ratio: Callable[[int], Values]) -> Values:
    """Return log(1 + r(1) + r(1) r(2) + ...), for ratios of terms that change slowly; it matters where they are below 1."""
    total = 1 / (1 - jnp.minimum(ratio(_NUM_TERMS), 0.999))
    for n in range(_NUM_TERMS - 1, 0, -1):
        total = 1 + jnp.minimum(ratio(n), 0.999) * total
    return jnp.log(total)


def log_gamma_below(a: Values, x: Values) -> Values:
    """Return the log of the regularised lower incomplete gamma function; where it underflows, of its series."""
    safe = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    series = a * jnp.log(safe) - safe - gammaln(a + 1) + _log_sum(lambda n: safe / (a + n))
    return _log_or(gammainc(a, safe), series)


def log_gamma_above(a: Values, x: Values) -> Values:
    """Return the log of the regularised upper incomplete gamma function; where it underflows, of a continued fraction."""
    safe = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    # Two steps of Legendre's continued fraction, for x far above a.
    far = jnp.maximum(safe, a + 1)
    fraction = far + 1 - a - (1 - a) / (far + 3 - a - 2 * (2 - a) / (far + 5 - a))
    return _log_or(gammaincc(a, safe), a * jnp.log(far) - far - gammaln(a) - jnp.log(fraction))


def log_beta_below(a: Values, b: Values, x: Values) -> Values:
    """Return the log of the regularised incomplete beta function; where it underflows, of its series."""
    tiny, most = jnp.finfo(x.dtype).tiny, 1 - jnp.finfo(x.dtype).epsneg
    safe = jnp.clip(x, tiny, most)
    series = (
        a * jnp.log(safe)
        + b * jnp.log1p(-safe)
        - jnp.log(a)
        - tfp.math.lbeta(a, b)
        + _log_sum(lambda n: (a + b + n - 1) / (a + n) * safe)
    )
    return _log_or(tfp.math.betainc(a, b, safe), series)


def log_complement(log_p: Values) -> Values:
    """Return log(1 - p), from log p."""
    return log1mexp(-log_p)
