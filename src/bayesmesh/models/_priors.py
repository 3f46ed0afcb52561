"""Prior distributions by name: see `bayesmesh.config.prior_texts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.prior_texts import FAMILIES, Prior

tfd, tfb = tfp.distributions, tfp.bijectors


def _zero(like: Any) -> Any:
    return jnp.zeros_like(like)


_MAKERS: Mapping[str, Callable[..., Any]] = {
    "gamma": tfd.Gamma,
    "inverse_gamma": tfd.InverseGamma,
    "log_normal": tfd.LogNormal,
    "beta": tfd.Beta,
    "uniform": tfd.Uniform,
    "dirichlet": lambda *c: tfd.Dirichlet(jnp.stack(c)),
}
"""Family that is not in `_UNIT` -> function of parameters, () each, that returns a TFP distribution."""


_UNIT: Mapping[str, Callable[..., Any]] = {
    "normal": lambda one: tfd.Normal(_zero(one), one),
    "student_t": lambda one, df: tfd.StudentT(df, _zero(one), one),
    "cauchy": lambda one: tfd.Cauchy(_zero(one), one),
    "laplace": lambda one: tfd.Laplace(_zero(one), one),
    "half_normal": tfd.HalfNormal,
    "half_student_t": lambda one, df: tfd.HalfStudentT(df, _zero(one), one),
    "half_cauchy": lambda one: tfd.HalfCauchy(_zero(one), one),
    "exponential": tfd.Exponential,
}
"""Location-scale or scale family -> its member with location 0 and scale 1."""


def has_location(family: str) -> bool:
    """Return whether a family is a location-scale family on the whole real line."""
    return family in ("normal", "student_t", "cauchy", "laplace")


def scaled(family: str, location: Any, scale: Any, shape: tuple[int, ...], *degrees: Any) -> Any:
    """Return independent members of a family, with unconstrained coordinates of unit scale whatever the members' scale.

    Chains then start and move at the scale of the prior.

    Args:
        family: a location-scale or scale family.
        location: () or `shape`; 0 where the family has none.
        scale: () or `shape`.
        shape: shape of the array.
        degrees: further parameters, () or `shape`.
    """
    one = jnp.ones_like(jnp.asarray(scale))
    unit = _UNIT[family](*(jnp.broadcast_to(x, shape) for x in (one, *degrees)))
    whole = tfd.Independent(unit, len(shape))
    stretch = tfb.Scale(jnp.broadcast_to(scale, shape))
    return tfd.TransformedDistribution(
        whole, tfb.Shift(jnp.broadcast_to(location, shape))(stretch) if has_location(family) else stretch
    )


def distribution_of(prior: Prior, dtype: str) -> Any:
    """Return the TFP distribution of a prior, with parameters in `dtype`; see `scaled` for its coordinates."""
    values = [jnp.asarray(value, dtype) for value in prior.parameters]
    if prior.family in _UNIT:
        location, scale, degrees = split_parameters(prior.family, values)
        return scaled(prior.family, location, scale, prior.shape, *degrees)
    made = _MAKERS[prior.family](*values)
    return tfd.Sample(made, prior.shape) if prior.shape else made


def split_parameters(family: str, values: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """Split the parameters of a family for `scaled` into location, scale and degrees of freedom."""
    named = dict(zip(FAMILIES[family].parameters, values, strict=True))
    location = named.get("mean", named.get("median", 0.0 * values[0]))
    scale = 1 / named["rate"] if "rate" in named else named.get("scale", named.get("sd"))
    return location, scale, [named["df"]] if "df" in named else []
