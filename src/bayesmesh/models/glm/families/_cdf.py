"""Logs of incomplete gamma and beta functions, which stay finite in the tails."""

from __future__ import annotations

import jax.numpy as jnp
from jax.scipy.special import gammainc, gammaincc, gammaln
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models.glm.families._links import log1mexp

Values = Float[Array, "..."]


def _log_or(value: Values, tail: Values) -> Values:
    """Return the log of a value, or `tail`, its asymptotic form, where the value underflows."""
    least = jnp.finfo(value.dtype).tiny * 1e4
    return jnp.where(value > least, jnp.log(jnp.maximum(value, least)), tail)


def log_gamma_below(a: Values, x: Values) -> Values:
    """Return the log of the regularised lower incomplete gamma function; below its smallest number, of its first terms."""
    safe = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    series = a * jnp.log(safe) - safe - gammaln(a + 1) + jnp.log1p(safe / (a + 1))
    return _log_or(gammainc(a, safe), series)


def log_gamma_above(a: Values, x: Values) -> Values:
    """Return the log of the regularised upper incomplete gamma function; below its smallest number, of a continued fraction."""
    safe = jnp.maximum(x, jnp.finfo(x.dtype).tiny)
    # Two steps of Legendre's continued fraction, for x far above a.
    far = jnp.maximum(safe, a + 1)
    fraction = far + 1 - a - (1 - a) / (far + 3 - a - 2 * (2 - a) / (far + 5 - a))
    return _log_or(gammaincc(a, safe), a * jnp.log(far) - far - gammaln(a) - jnp.log(fraction))


def log_beta_below(a: Values, b: Values, x: Values) -> Values:
    """Return the log of the regularised incomplete beta function; below its smallest number, of its first terms."""
    tiny, most = jnp.finfo(x.dtype).tiny, 1 - jnp.finfo(x.dtype).epsneg
    safe = jnp.clip(x, tiny, most)
    series = (
        a * jnp.log(safe)
        + b * jnp.log1p(-safe)
        - jnp.log(a)
        - tfp.math.lbeta(a, b)
        + jnp.log1p((a + b) / (a + 1) * safe)
    )
    return _log_or(tfp.math.betainc(a, b, safe), series)


def log_complement(log_p: Values) -> Values:
    """Return log(1 - p), from log p."""
    return log1mexp(-log_p)
