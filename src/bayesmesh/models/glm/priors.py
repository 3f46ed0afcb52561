"""Priors of a linear model: by name, or by defaults that are scaled to the data.

The defaults are those of rstanarm where it has one (Gabry and Goodrich, "Prior distributions for rstanarm models"), with
the intercept around the link of the mean outcome for every family. Without an intercept they are scaled by the root mean
square of the outcome, because coefficients or group effects then have to explain its mean.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.prior_texts import Prior, parse_prior
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models._priors import distribution_of, has_location, scaled, split_parameters
from bayesmesh.models.base import Bijector, DataSpec, Latents
from bayesmesh.models.glm.coordinates import Coordinates
from bayesmesh.models.glm.design import Columns, Group
from bayesmesh.models.glm.families.base import DEFAULT_SCALE, LINKS_OF_PARAMETERS, Family, Parameter
from bayesmesh.models.glm.formula import KEY
from bayesmesh.models.glm.plan import Plan
from bayesmesh.models.glm.predictor import Predictor

tfd, tfb = tfp.distributions, tfp.bijectors

_LKJ = re.compile(r"\s*lkj\(\s*([0-9.]+)\s*\)\s*")

_FAR = 4.0
"""Distance from 0, in standard deviations of prior and least squares together: 1 in 16,000 values is beyond it by chance."""

_OFF_CENTRE = 10.0
"""Root mean square of a column, in its standard deviations, from which a default prior excludes its slopes."""

_MOST_NAMED = 4
"""Largest number of coefficients that a warning names."""


class GlmPrior:
    """A joint prior of latents; those that depend on others lie on the whole real line.

    Args:
        parts: latent -> distribution, or function of the latents before it.
        plan, family, spec: those of the model, which determine the coordinates.
    """

    def __init__(self, parts: Mapping[str, Any], plan: Plan, family: Family, spec: DataSpec) -> None:
        self._parts, self._plan, self._family, self._spec = dict(parts), plan, family, spec

    def _of(self, name: str, latents: Latents) -> Any:
        part = self._parts[name]
        return part if isinstance(part, tfd.Distribution) else part(latents)

    def sample(self, *, seed: PRNGKeyArray) -> dict[str, Array]:
        """Return a draw."""
        drawn: dict[str, Array] = {}
        for name, key in zip(self._parts, jax.random.split(seed, len(self._parts)), strict=True):
            drawn[name] = self._of(name, drawn).sample(seed=key)
        return drawn

    def log_prob(self, value: Latents) -> Float[Array, ""]:
        """Return the log density, in nats."""
        terms = [self._of(name, value).log_prob(value[name]) for name in self._parts]
        return sum(terms[1:], start=terms[0])

    def experimental_default_event_space_bijector(self) -> Bijector:
        """Return the map from unconstrained space: see `coordinates`."""
        plain = {k: p for k, p in self._parts.items() if isinstance(p, tfd.Distribution)}
        maps = {k: p.experimental_default_event_space_bijector() for k, p in plain.items()}
        positive = {name for name, part in plain.items() if _is_of_all_positive(part)}
        return Coordinates(
            self._plan, self._family, self._spec, {name: maps.get(name) for name in self._parts}, positive
        )


_POSITIVE = (
    tfd.Exponential, tfd.HalfNormal, tfd.HalfStudentT, tfd.HalfCauchy, tfd.Gamma, tfd.InverseGamma, tfd.LogNormal,
)  # fmt: skip


def _is_of_all_positive(distribution: Any) -> bool:
    """Return whether the support of a distribution is all positive numbers, also for arrays and with a scale."""
    while isinstance(distribution, (tfd.TransformedDistribution, tfd.Independent, tfd.Sample)) and not isinstance(
        distribution, tfd.LogNormal
    ):
        distribution = distribution.distribution
    return isinstance(distribution, _POSITIVE)


_SUPPORTS = {
    "log": "a prior of positive numbers, such as exponential(1) or half_student_t(3, 2.5)",
    "logit": "a prior of numbers between 0 and 1, such as beta(1, 1)",
    "identity": "a prior on the real line, such as normal(0, 1)",
}
"""Link of a parameter -> the priors that fit."""


def make_prior(plan: Plan, family: Family, options: Any, spec: DataSpec) -> dict[str, Any]:
    """Return latent -> distribution, in the dtype of `spec`.

    Raises:
        ConfigError: a name is not one of the model's, or a text is not a valid prior for it.
    """
    _check_names(plan, options.priors)
    scale, constants = float(spec.constants["outcome_scale"]), spec.constants
    centre = family.to_predictor(constants["outcome_mean"] / constants["trials_mean"]) - constants["offset_mean"]
    maker = _Maker(plan.main, options.priors, "key 'model.priors", spec, centre, scale if family.is_in_unit else 1.0)
    parts = maker.of_columns()
    parts |= {name: _of_parameter(name, plan, family, options.priors, spec) for name in plan.parameters}
    parts |= maker.of_groups()
    for name, predictor in plan.others.items():
        given, key = options.parameters[name].priors, f"key 'model.parameters.{name}.priors"
        _check_given(given, _names_of(predictor), f"{key}'", f"the predictor of {name}")
        own = _Maker(
            predictor, given, key, spec, *default_of_parameter(family.parameters[name], plan.links[name], scale)
        )
        parts |= own.of_columns() | own.of_groups()
    return parts


def default_of_parameter(parameter: Parameter, link: str, outcome_scale: float) -> tuple[float, float]:
    """Return the centre of the default prior of a parameter's intercept, and the unit of its predictor.

    The centre is the mean that the parameter would have without a formula.
    """
    # Priors may be made while a program is traced, and the centre is a number on the host.
    with jax.ensure_compile_time_eval():
        usual = distribution_of(parse_prior(parameter.prior.format(rate=1 / outcome_scale), KEY), "float32").mean()
        centre = float(LINKS_OF_PARAMETERS[link][0](usual))
    unit = outcome_scale if link == "identity" and "{rate}" in parameter.prior else 1.0
    return centre, unit


def _names_of(predictor: Predictor) -> list[str]:
    """Return the names of the priors of a predictor, without its prefix."""
    valid = ["intercept"] if predictor.has_intercept else []
    # `coefficients` is valid even without terms; a term that the formula lacks may be misspelt.
    valid += ["coefficients", *predictor.parts]
    valid += ["sd", *(f"sd_{g.name}" for g in predictor.groups)] if predictor.groups else []
    correlated = [f"correlation_{g.name}" for g in predictor.groups if g.is_correlated]
    return valid + (["correlation", *correlated] if correlated else [])


def _check_names(plan: Plan, given: Mapping[str, str]) -> None:
    for name in (*plan.others, *plan.fixed):
        if name in given:
            remedy = f"write its priors into 'model.parameters.{name}.priors'" if name in plan.others else "remove it"
            raise ConfigError(
                f"key 'model.priors.{name}': '{name}' has a value of its own in 'model.parameters'", remedy
            )
    _check_given(given, [*plan.parameters, *_names_of(plan.main)], "key 'model.priors'", "the model")


def _check_given(given: Mapping[str, str], valid: list[str], key: str, whose: str) -> None:
    for name in given:
        if name not in valid:
            raise ConfigError(f"{key}: {whose} has no '{name}'", suggest(name, valid))


class _Maker:
    """Makes the distributions of one predictor.

    Args:
        predictor: the predictor.
        given: name -> prior, as the configuration has it.
        key: the key that holds them, without the last quotation mark.
        spec: description of the prepared data.
        centre: centre of the default prior of the intercept.
        unit: unit of the predictor, of which default priors are multiples.
    """

    def __init__(
        self, predictor: Predictor, given: Mapping[str, str], key: str, spec: DataSpec, centre: float, unit: float
    ) -> None:
        self._predictor, self._given, self._key, self._spec = predictor, given, key, spec
        self._centre, self._unit, self._dtype = centre, unit, spec.dtype
        if "coefficients" in self._given:
            # Checked even if no column uses it.
            self._prior_on_line("coefficients")

    def of_columns(self) -> dict[str, Any]:
        """Return the priors of intercept and coefficients."""
        parts = {self._predictor.intercept: self._intercept()} if self._predictor.has_intercept else {}
        return parts | {name: self._coefficients(indices) for name, indices in self._predictor.blocks.items()}

    def of_groups(self) -> dict[str, Any]:
        """Return the priors of all groups."""
        return {name: part for group in self._predictor.groups for name, part in self._group(group).items()}

    def _array(self, values: Any) -> Array:
        return jnp.asarray(values, self._dtype)

    def _intercept(self) -> tfp.distributions.Distribution:
        """Return the prior of the intercept where all columns have their means."""
        if "intercept" in self._given:
            prior = self._prior_on_line("intercept")
            location, scale, degrees = split_parameters(prior.family, [self._array(v) for v in prior.parameters])
            return scaled(prior.family, location, scale, self._predictor.output_shape, *degrees)
        shape = self._predictor.output_shape
        return scaled("normal", self._array(self._centre), self._array(DEFAULT_SCALE * self._unit), shape)

    def _prior_on_line(self, name: str) -> Prior:
        prior = parse_prior(self._given[name], f"{self._key}.{name}'")
        if prior.shape or not has_location(prior.family):
            raise self._misfit(name, "normal, student_t, cauchy or laplace, without a shape")
        return prior

    def _misfit(self, name: str, wanted: str) -> ConfigError:
        return _misfit(f"{self._key}.{name}'", self._given[name], wanted)

    def _coefficients(self, indices: tuple[int, ...]) -> tfp.distributions.Distribution:
        """Return the prior of the coefficients of some columns, which share a family."""
        names = [name for name, part in self._predictor.parts.items() for _ in range(part.start, part.stop)]
        family, rows = "normal", []
        for i in indices:
            key = names[i] if names[i] in self._given else "coefficients"
            if key not in self._given:
                scale = DEFAULT_SCALE * self._unit / self._predictor.sd[i]
                if not (limits := np.finfo(self._dtype)).tiny < min(scale, 1 / scale, limits.max):
                    problem = f"{KEY}: '{names[i]}' has a standard deviation of {self._predictor.sd[i]:.3g}, so that {self._dtype} cannot hold its coefficient"
                    raise ConfigError(problem, "standardise the columns in it with the key 'data.standardise', or set `compute: {dtype: float64}`")  # fmt: skip
                rows.append((0.0, scale))
                continue
            prior = self._prior_on_line(key)
            family = prior.family
            location, scale, degrees = split_parameters(prior.family, prior.parameters)
            rows.append((location, scale, *degrees))
        width = (len(indices), *self._predictor.output_shape)
        columns = [self._predictor.over_outputs(np.array(values), self._dtype) for values in zip(*rows, strict=True)]
        location, scale, *degrees = [jnp.broadcast_to(values, width) for values in columns]
        return scaled(family, location, scale, width, *degrees)

    def _group(self, group: Group) -> dict[str, object]:
        """Return the priors of standard deviations, correlations and effects of a group."""
        rate = self._array(group.sizes) / self._unit
        number = (group.num_effects,)
        key = f"sd_{group.name}" if f"sd_{group.name}" in self._given else "sd"
        sd = scaled("exponential", self._array(0.0), 1 / rate, number)
        if key in self._given:
            prior = parse_prior(self._given[key], f"{self._key}.{key}'")
            if prior.shape or has_location(prior.family) or prior.family == "dirichlet":
                raise self._misfit(
                    key,
                    "a prior of positive numbers, such as exponential(1) or half_student_t(3, 2.5), without a shape",
                )
            sd = distribution_of(prior._replace(shape=number), self._dtype)
        parts = {group.sd: sd}
        if group.is_correlated:
            parts[group.correlation] = tfd.CholeskyLKJ(group.num_effects, self._array(self._concentration(group)))
        num_levels = self._spec.num_entries if group.is_local else group.num_levels
        parts[group.effects] = lambda latents: _effects(group, latents, num_levels)
        return parts

    def _concentration(self, group: Group) -> float:
        key = f"correlation_{group.name}" if f"correlation_{group.name}" in self._given else "correlation"
        text = self._given.get(key, "lkj(1)")
        found = _LKJ.fullmatch(text)
        if found is None or not float(found[1]) > 0:
            raise ConfigError(f"{self._key}.{key}': '{text}' is not a prior of correlations", "use for example lkj(2)")
        return float(found[1])


def _misfit(key: str, text: str, wanted: str) -> ConfigError:
    return ConfigError(f"{key}: '{text}' does not fit", f"use {wanted}")


def _of_parameter(
    name: str, plan: Plan, family: Family, given: Mapping[str, str], spec: DataSpec
) -> tfp.distributions.Distribution:
    """Return the prior of a parameter of the family that is one number."""
    key = f"key 'model.priors.{name}'"
    text = given.get(name, family.parameters[name].prior.format(rate=1 / float(spec.constants["outcome_scale"])))
    prior = parse_prior(text if name != "baseline" else _over_levels(text, plan.num_levels), key)
    link = family.parameters[name].link
    wanted = "dirichlet with one number, or one for each level" if name == "baseline" else _SUPPORTS[link]
    fits = {
        "log": not has_location(prior.family),
        "logit": prior.family in ("beta", "uniform"),
        "identity": has_location(prior.family),
    }[link]
    if prior.shape or (prior.family == "dirichlet") != (name == "baseline") or not fits:
        raise _misfit(key, text, wanted)
    made = distribution_of(prior, spec.dtype)
    if name == "baseline" and made.event_shape != (plan.num_levels,):
        raise _misfit(key, text, f"dirichlet with one number, or one for each of {plan.num_levels} levels")
    return made


def _over_levels(text: str, num_levels: int) -> str:
    """Return a Dirichlet prior written with a single number as one that repeats this number for every level."""
    found = re.fullmatch(r"\s*dirichlet\(\s*([^,()]+)\)\s*", text)
    return f"dirichlet({', '.join([found[1]] * num_levels)})" if found else text


def _effects(group: Group, latents: Latents, num_levels: int) -> tfp.distributions.Distribution:
    """Return the distribution of effects given their standard deviations and correlations."""
    sd = latents[group.sd]
    if group.is_correlated:
        one = tfd.MultivariateNormalTriL(scale_tril=group.scale(latents))
        return tfd.Sample(one, num_levels)
    return tfd.Independent(tfd.Normal(jnp.zeros((num_levels, 1), sd.dtype), sd[None]), 2)


def find_conflicts(predictor: Predictor, family: Family, options: Any, spec: DataSpec) -> list[str]:
    """Return a warning of coefficients whose default priors forbid what the data say, if there are any.

    If a prior N(0, s^2) holds, a least-squares value with standard error e is distributed as N(0, s^2 + e^2) before the data
    are seen, as for the conflict between prior and data of Evans and Moshonov (2006, doi:10.1214/06-BA129). Columns that are
    nearly combinations of others, such as a year and its square, need coefficients that their own standard deviations do not
    suggest.
    """
    if not predictor.columns or "coefficients" in options.priors or "least_squares" not in spec.arrays:
        return []
    width, found = len(predictor.sd), []
    unit = float(spec.constants["outcome_scale"]) if family.is_in_unit else 1.0
    estimates, errors = np.asarray(spec.arrays["least_squares"])[:, -width:].reshape(2, width, -1)
    distances = np.abs(estimates) / np.hypot(DEFAULT_SCALE * unit, errors)
    for columns, part in zip(predictor.columns, predictor.parts.values(), strict=True):
        i, j = np.unravel_index(np.argmax(distances[part]), distances[part].shape)
        if columns.name not in options.priors and distances[part][i, j] > _FAR:
            prior, estimate, error = (
                x / predictor.sd[part][i] for x in (DEFAULT_SCALE * unit, estimates[part][i, j], errors[part][i, j])
            )
            numbers = (
                f"has a prior standard deviation of {prior:.3g}, and least squares gives {estimate:.4g} +- {error:.2g}"
            )
            found.append((distances[part][i, j], columns, f"'{columns.labels[i]}' {numbers}", abs(estimate)))
    if not found:
        return []
    found = sorted(found, key=lambda each: -each[0])[:_MOST_NAMED]
    standardise = list(dict.fromkeys(name for _, columns, *_ in found for name in _to_standardise(columns, spec)))
    keys = ", ".join(f'{json.dumps(columns.name)}: "normal(0, {2 * size:.1g})"' for _, columns, _, size in found)
    remedy = f"standardise the columns in the data (standardise: {json.dumps(standardise)}), or " if standardise else ""
    return [
        f"{KEY}: default priors forbid coefficients that the data determine: {'; '.join(text for *_, text, _ in found)}. Their "
        f"standard deviations follow from those of single columns: {remedy}set wider priors in the model (priors: {{{keys}}})"
    ]


def find_shut_off(key: str, predictor: Predictor, given: Mapping[str, str], spec: DataSpec) -> list[str]:
    """Return a warning for each column far from zero whose slopes a default prior all but excludes.

    The prior follows from the root mean square of the column, and how far slopes can differ from its standard deviation.

    Args:
        key: key of the formula.
        predictor: the predictor.
        given: its priors that the configuration gives.
        spec: description of the prepared data.
    """
    numbers = {
        columns.labels[i]: (columns, predictor.mean[part][i], predictor.sd[part][i])
        for columns, part in zip(predictor.columns, predictor.parts.values(), strict=True)
        for i in range(len(columns.labels))
        if not columns.is_of_levels
    }
    by_default = [group for group in predictor.groups if not {"sd", f"sd_{group.name}"} & given.keys()]
    slopes = [(g, *each) for g in by_default for each in zip(g.labels, g.sizes, strict=True) if each[0] in numbers]
    found = []
    for group, label, size in slopes:
        columns, mean, sd = numbers[label]
        if size < _OFF_CENTRE * sd:
            continue
        names = list(_to_standardise(columns, spec))
        standardise = f"standardise it in the data (standardise: {json.dumps(names)}), or " if names else ""
        example = f", such as I({label} - {mean:.4g})" if columns.is_single and mean > 0 else ""
        found.append(
            f"{key}: the default prior of {group.sd} nearly excludes that slopes of '{label}' differ: its mean is "
            f"{size / sd:.0f} times smaller than for a centred column. Centre the column: {standardise}subtract its mean in "
            f"the formula{example}"
        )
    return found


def _to_standardise(columns: Columns, spec: DataSpec) -> Iterator[str]:
    """Yield the columns of numbers from which a term is computed by arithmetic alone, unless they are standardised."""
    for factor in columns.term:
        calls = {ast.unparse(node.func) for node in ast.walk(factor.tree) if isinstance(node, ast.Call)}
        for name in factor.names if calls <= {"I"} else ():
            about = spec.variables.get(name)
            if about is not None and about.kind == "number" and (about.mean, about.scale) == (0.0, 1.0):
                yield name
