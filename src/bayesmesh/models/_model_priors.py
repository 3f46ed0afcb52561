"""Priors by name, such as ``normal(0, 2.5)`` or ``half_normal(1)[3]``: parsed as text, never evaluated.

The parameters are Stan's: a scale is a standard deviation where there is one, and `exponential`, `gamma` and
`inverse_gamma` take rates and scales as Stan's distributions of these names do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.errors import ConfigError, suggest

tfd, tfb = tfp.distributions, tfp.bijectors

_TEXT = re.compile(r"\s*([a-z_]+)\s*\(([^()]*)\)\s*(?:\[([0-9,\s]*)\])?\s*")
_EXAMPLE = "for example normal(0, 1), half_normal(2.5), or dirichlet(1, 1, 1)[2] for two of them"


class _Family(NamedTuple):
    """A family of priors.

    Attributes:
        parameters: their names; a last one that begins with ``*`` stands for any number.
        make: from parameters, () each, to a distribution of TFP.
        positive: which parameters must be greater than 0.
    """

    parameters: tuple[str, ...]
    make: Callable[..., Any]
    positive: frozenset[str] = frozenset()


def _family(parameters: str, make: Callable[..., Any], positive: str = "") -> _Family:
    return _Family(tuple(parameters.split()), make, frozenset(positive.split()))


def _zero(like: Any) -> Any:
    return jnp.zeros_like(like)


FAMILIES: Mapping[str, _Family] = {
    "normal": _family("mean sd", tfd.Normal, "sd"),
    "student_t": _family("df mean scale", tfd.StudentT, "df scale"),
    "cauchy": _family("median scale", tfd.Cauchy, "scale"),
    "laplace": _family("mean scale", tfd.Laplace, "scale"),
    "half_normal": _family("scale", tfd.HalfNormal, "scale"),
    "half_student_t": _family("df scale", lambda df, scale: tfd.HalfStudentT(df, _zero(scale), scale), "df scale"),
    "half_cauchy": _family("scale", lambda scale: tfd.HalfCauchy(_zero(scale), scale), "scale"),
    "exponential": _family("rate", tfd.Exponential, "rate"),
    "gamma": _family("shape rate", tfd.Gamma, "shape rate"),
    "inverse_gamma": _family("shape scale", tfd.InverseGamma, "shape scale"),
    "log_normal": _family("mean_of_log sd_of_log", tfd.LogNormal, "sd_of_log"),
    "beta": _family("a b", tfd.Beta, "a b"),
    "uniform": _family("low high", tfd.Uniform),
    "dirichlet": _family("*concentration", lambda *c: tfd.Dirichlet(jnp.stack(c)), "*concentration"),
}
"""Name -> family."""


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
"""Families of a location and a scale, or a scale -> the member with location 0 and scale 1."""


def has_location(family: str) -> bool:
    """Return whether a family is one of a location and a scale on the whole line."""
    return family in ("normal", "student_t", "cauchy", "laplace")


def scaled(family: str, location: Any, scale: Any, shape: tuple[int, ...], *degrees: Any) -> Any:
    """Return independent members of a family, whose unconstrained coordinates have unit scale whatever theirs is.

    Chains then start, and step, at the scale of the prior.

    Args:
        family: one of a location and a scale, or of a scale alone.
        location: (), or of the shape; 0 where the family has none.
        scale: (), or of the shape.
        shape: of the array.
        degrees: further parameters, () or of the shape.
    """
    one = jnp.ones_like(jnp.asarray(scale))
    unit = _UNIT[family](*(jnp.broadcast_to(x, shape) for x in (one, *degrees)))
    whole = tfd.Independent(unit, len(shape))
    stretch = tfb.Scale(jnp.broadcast_to(scale, shape))
    return tfd.TransformedDistribution(
        whole, tfb.Shift(jnp.broadcast_to(location, shape))(stretch) if has_location(family) else stretch
    )


class Prior(NamedTuple):
    """A prior as it was written: name of its family, parameters, and shape of the array of independent ones."""

    family: str
    parameters: tuple[float, ...]
    shape: tuple[int, ...]

    def distribution(self, dtype: str) -> Any:
        """Return the distribution of TFP, with parameters of a dtype; see `scaled` for its coordinates."""
        values = [jnp.asarray(value, dtype) for value in self.parameters]
        if self.family in _UNIT:
            location, scale, degrees = self.split(values)
            return scaled(self.family, location, scale, self.shape, *degrees)
        made = FAMILIES[self.family].make(*values)
        return tfd.Sample(made, self.shape) if self.shape else made

    def split(self, values: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
        """Return location, scale and degrees of freedom among the parameters of a family of `scaled`."""
        named = dict(zip(FAMILIES[self.family].parameters, values, strict=True))
        location = named.get("mean", named.get("median", 0.0 * values[0]))
        scale = 1 / named["rate"] if "rate" in named else named.get("scale", named.get("sd"))
        return location, scale, [named["df"]] if "df" in named else []


def parse_prior(text: str, where: str) -> Prior:
    """Return the prior that a text names.

    Args:
        text: such as ``normal(0, 1)`` or ``gamma(2, 0.5)[3, 2]``; the shape is in brackets.
        where: the key, for messages.

    Raises:
        ConfigError: the text is not of this form, or names no family; or parameters are missing or out of range.

    >>> parse_prior("normal(0, 2.5)[3]", "key")
    Prior(family='normal', parameters=(0.0, 2.5), shape=(3,))
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ConfigError(f"{where}: '{text:.60}' is not a prior", f"write a name, parameters and a shape, {_EXAMPLE}")
    name, inside, shape = found.groups()
    if name not in FAMILIES:
        raise ConfigError(f"{where}: '{name}' is not a family of priors", suggest(name, FAMILIES))
    written = [part.strip() for part in inside.split(",")] if inside.strip() else []
    try:
        values = tuple(map(float, written))
        sizes = tuple(int(part) for part in shape.split(",") if part.strip()) if shape else ()
    except ValueError:
        raise ConfigError(f"{where}: '{text:.60}' has a parameter that is not a number", f"write numbers, {_EXAMPLE}") from None  # fmt: skip
    _check(name, values, f"{where}: '{text:.60}'")
    if 0 in sizes:
        raise ConfigError(f"{where}: '{text:.60}' has a shape that holds nothing", "leave the latent out")
    return Prior(name, values, sizes)


def _check(name: str, values: tuple[float, ...], where: str) -> None:
    """Refuse parameters of another number, or out of their range."""
    family = FAMILIES[name]
    is_open = family.parameters[-1].startswith("*")
    usage = f"{name}({', '.join(p.replace('*', '') + (', ...' if is_open else '') for p in family.parameters)})"
    if len(values) < 2 if is_open else len(values) != len(family.parameters):
        raise ConfigError(f"{where}: {len(values)} parameters", f"write {usage}")
    names = family.parameters * len(values) if is_open else family.parameters
    for parameter, value in zip(names, values, strict=False):
        if not math.isfinite(value) or (parameter in family.positive and value <= 0):
            least = "greater than 0" if parameter in family.positive else "finite"
            raise ConfigError(f"{where}: {parameter.lstrip('*')} must be {least}", f"write {usage}")
    if name == "uniform" and not values[0] < values[1]:
        raise ConfigError(f"{where}: low must be less than high", f"write {usage}")
