"""The plan by which prepared rows enter a linear model: its predictors, and the parameters that are one number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from bayesmesh.models.base import DataSpec, Latents, Rows
from bayesmesh.models.glm.coefficients import unit_of
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.families.base import LINKS_OF_PARAMETERS, Parameter
from bayesmesh.models.glm.formula import Formula
from bayesmesh.models.glm.predictor import Predictor
from bayesmesh.models.glm.rows import make_reader


class Plan(NamedTuple):
    """The predictors and parameters of a linear model.

    Attributes:
        main: predictor of the outcome.
        others: parameter -> its predictor, for parameters that have a formula.
        links: the same parameters -> their links.
        parameters: parameters of the family that are one latent for all rows.
        fixed: parameter -> the number to which it is set.
        num_levels: number of levels of the outcome if it is a category; else 0.
        unit: shift and scale from the unit of the outcome, as the model reads it, to that of the table.
        integrated: the group whose effects condensed rows integrate out, if there is one.
        has_normal_units: whether the effects of several groups are normal given all else, and are their own coordinates.
    """

    main: Predictor
    others: Mapping[str, Predictor]
    links: Mapping[str, str]
    parameters: tuple[str, ...]
    fixed: Mapping[str, float]
    num_levels: int
    unit: tuple[float, float]
    integrated: Group | None
    has_normal_units: bool

    @property
    def predictors(self) -> tuple[Predictor, ...]:
        """All predictors, the main one first."""
        return (self.main, *self.others.values())

    @property
    def formula(self) -> Formula:
        """The formula of the outcome."""
        return self.main.formula

    @property
    def local(self) -> Group | None:
        """The group effects that are stored with their rows."""
        return next((group for group in self.main.groups if group.is_local), None)

    @property
    def has_sigma_in_table(self) -> bool:
        """Whether there is a summary of sigma in the unit of the table, which differs from that of the outcome."""
        return "sigma" in self.parameters and self.unit[1] != 1

    def values(self, latents: Latents, rows: Rows) -> dict[str, Array]:
        """Return the parameters of the family: one number, or one for each row."""
        found = {name: latents[name] for name in self.parameters}
        for name, number in self.fixed.items():
            found[name] = jnp.asarray(number, next(iter(latents.values())).dtype)
        for name, predictor in self.others.items():
            found[name] = LINKS_OF_PARAMETERS[self.links[name]][1](predictor.of_rows(latents, rows))
        return found

    def at_centre(self, latents: Latents, dtype: Any) -> dict[str, Float[Array, "..."]]:
        """Return the parameters of the family where the columns of their predictors have their means."""
        found = {name: latents[name] for name in self.parameters}
        found |= {name: jnp.asarray(number, dtype) for name, number in self.fixed.items()}
        for name, predictor in self.others.items():
            eta = latents[predictor.intercept] if predictor.has_intercept else jnp.zeros((), dtype)
            found[name] = LINKS_OF_PARAMETERS[self.links[name]][1](eta)
        return found


def make_plan(options: Any, spec: DataSpec) -> Plan:
    """Return the plan for prepared data.

    Args:
        options: options of the model.
        spec: description of the prepared data, whose constants hold what was found in the rows.

    Raises:
        ConfigError: a formula does not fit the columns.
    """
    reader = make_reader(options, spec, spec.source_fields)
    family, settings = reader.family, options.parameters
    num_levels = int(spec.constants.get("outcome_levels", 0))
    unit = unit_of(reader.main.formula.outcome, spec.variables) if family.is_in_unit else (0.0, 1.0)
    main = reader.main.bind(spec, options.priors, options.centred, family.output_shape(num_levels), unit)
    others, links = {}, {}
    for name, terms in reader.others.items():
        links[name] = family.parameters[name].link
        others[name] = terms.bind(
            spec,
            settings[name].priors,
            options.centred,
            (),
            _unit_of_parameter(family.parameters[name], links[name], unit[1]),
        )
    fixed = {name: each for name, each in settings.items() if isinstance(each, float)}
    parameters = tuple(name for name in family.parameters if name not in settings)
    chosen = spec.constants.get("integrated_group")
    integrated = None if chosen is None else main.groups[int(chosen)]
    return Plan(
        main, others, links, parameters, fixed, num_levels, unit, integrated, reader.has_normal_units(main.groups)
    )


def _unit_of_parameter(parameter: Parameter, link: str, scale: float) -> tuple[float, float]:
    """Return shift and scale of the predictor of a parameter, which may have the unit of the outcome."""
    if "{rate}" not in parameter.prior or link == "logit":
        return 0.0, 1.0
    return (math.log(scale), 1.0) if link == "log" else (0.0, scale)
