"""Priors by name, such as ``normal(0, 2.5)`` or ``half_normal(1)[3]``: parsed as text, never evaluated.

The parameters are Stan's: a scale is a standard deviation where there is one, and `exponential`, `gamma` and
`inverse_gamma` take rates and scales as Stan's distributions of these names do. This module does what is possible before JAX is
imported; `bayesmesh.models._priors` makes the distributions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, NamedTuple

from pydantic import AfterValidator

from bayesmesh.config.settings import does_not_fit
from bayesmesh.errors import ConfigError, suggest

_TEXT = re.compile(r"\s*([a-z_]+)\s*\(([^()]*)\)\s*(?:\[([0-9,\s]*)\])?\s*")
_EXAMPLE = "for example normal(0, 1), half_normal(2.5), or dirichlet(1, 1, 1)[2] for two of them"

_OF_MODELS = re.compile(r"\s*(lkj|dirichlet)\(\s*[^,()]+\)\s*")
"""One number for a matrix of correlations, or for all levels, whose number the model knows."""


class PriorFamily(NamedTuple):
    """A family of priors.

    Attributes:
        parameters: names of the parameters; a last one that begins with ``*`` stands for any number of them.
        positive: which of them must be greater than 0.
    """

    parameters: tuple[str, ...]
    positive: frozenset[str] = frozenset()


def _family(parameters: str, positive: str = "") -> PriorFamily:
    return PriorFamily(tuple(parameters.split()), frozenset(positive.split()))


FAMILIES: Mapping[str, PriorFamily] = {
    "normal": _family("mean sd", "sd"),
    "student_t": _family("df mean scale", "df scale"),
    "cauchy": _family("median scale", "scale"),
    "laplace": _family("mean scale", "scale"),
    "half_normal": _family("scale", "scale"),
    "half_student_t": _family("df scale", "df scale"),
    "half_cauchy": _family("scale", "scale"),
    "exponential": _family("rate", "rate"),
    "gamma": _family("shape rate", "shape rate"),
    "inverse_gamma": _family("shape scale", "shape scale"),
    "log_normal": _family("mean_of_log sd_of_log", "sd_of_log"),
    "beta": _family("a b", "a b"),
    "uniform": _family("low high"),
    "dirichlet": _family("*concentration", "*concentration"),
}
"""Name -> family."""


class Prior(NamedTuple):
    """A prior as written: name of its family, parameters, and shape of the array of independent copies."""

    family: str
    parameters: tuple[float, ...]
    shape: tuple[int, ...]


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
    """Refuse a wrong number of parameters, and parameters out of range."""
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


def _refuse_other_texts(text: str) -> str:
    if _OF_MODELS.fullmatch(text) is None:
        try:
            parse_prior(text, "")
        except ConfigError as error:
            raise does_not_fit("", error.message.removeprefix(": "), error.remedy) from None
    return text


PriorText = Annotated[str, AfterValidator(_refuse_other_texts)]
"""A prior by name; the model decides whether it fits the latent."""
