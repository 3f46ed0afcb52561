"""Generalised linear models with group effects, from a formula.

Columns are computed once on the host and standardised there; coefficients and effects are in the units of the data.
`coordinates` describes the coordinates in which they are sampled.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, Shaped

from bayesmesh.config.settings import Settings
from bayesmesh.models.base import (
    Axis,
    DataSpec,
    Latents,
    Model,
    Predictive,
    Preparation,
    Prior,
    ReadBlocks,
    Regression,
    Rows,
    Shown,
)
from bayesmesh.models.glm import conditionals, partial
from bayesmesh.models.glm.coefficients import SIGMA
from bayesmesh.models.glm.condensed import ROOT, Layout
from bayesmesh.models.glm.description import CUTPOINTS, axes_of, describe, shown_of
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.families.base import family_of
from bayesmesh.models.glm.integrated import GRAM, Levels, log_density, sums_of_levels
from bayesmesh.models.glm.plan import Plan, make_plan
from bayesmesh.models.glm.priors import GlmPrior, make_prior
from bayesmesh.models.glm.rows import ROLES, prepare_table, with_roles
from bayesmesh.models.options import GlmOptions as Options


class Glm(Model):
    """A regression of one column on others.

    Reads the columns that its formula names. Latents: ``intercept`` at the means of the columns, ``coefficients`` in the
    order of the columns, parameters of the family, and for each group ``sd_GROUP``, ``correlation_GROUP`` and
    ``effects_GROUP``, in the unit of the predictor.
    """

    pretty_name = "Generalised linear model"
    offers = ()
    may_be_infinite = partial.ENDS
    reads_roles = ROLES
    options: Options

    def __init__(self, options: Settings, spec: DataSpec) -> None:
        super().__init__(options, spec)
        own = self.options
        self.family = family_of(own.family, own.link)
        self.plan: Plan = make_plan(own, spec)
        self.is_one_sided = partial.is_one_sided(own)
        local = None if self.integrated else self.plan.local
        self.local_latents = {} if local is None else {local.effects: 0}  # type: ignore[misc]  # by option, not by class
        units = self.plan.main.groups if self.plan.has_normal_units else ()
        self.blocks = {g.effects: {g.effects: 0} for g in units if not g.is_local}  # type: ignore[misc]  # as above

    @classmethod
    def prepare(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation | None:
        """Replace fields by the columns that are computed from them, with their means and standard deviations.

        Raises:
            ConfigError: the formula does not fit the data; names the key, and the row where one is at fault.
        """
        return prepare_table(options, spec, read_blocks)

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return the names of columns, levels and effects."""
        return axes_of(self.plan, self.spec)

    def shown(self) -> Sequence[Shown]:
        """Return coefficients in the units of the table, parameters of the family, and group effects."""
        return shown_of(self.plan, self.family)

    def described(self) -> Mapping[str, object]:
        """Return family, link, priors, the unit of effects, how the predictor acts on the outcome, and alternatives."""
        return describe(self.plan, self.family, self.options, self.spec)

    @property
    def has_unit_scale(self) -> bool:
        """Whether there was a quick fit, and no second group whose effects may be correlated with the first's."""
        groups = self.plan.main.groups
        return (
            not self.plan.others
            and "location" in self.spec.arrays
            and len(groups) < 2
            and all(g.is_centred is None for g in groups)
        )

    @property
    def row_problem(self) -> str:
        """Why a row with a weight cannot be left out; empty without weights."""
        if (name := self.options.weights) is None:
            return ""
        return (
            f"rows have weights (key 'model.weights': '{name}'), and a weighted row is not one observation to leave out"
        )

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the priors by name; those that are not given are scaled to the data."""
        parts = make_prior(self.plan, self.family, self.options, data_spec)
        sampled = {name: part for name, part in parts.items() if name not in self.integrated}
        return GlmPrior(sampled, self.plan, self.family, data_spec)

    @property
    def integrated(self) -> Mapping[str, tuple[int, ...]]:
        """The effects of a level, where condensed rows integrate them out."""
        group = self.plan.integrated
        return {} if group is None or GRAM not in self.spec.fields else {group.effects: (group.num_effects,)}

    def draw_integrated(self, latents: Latents, rows: Rows, normals: Latents) -> dict[str, Array]:
        """Return the effects of each level, drawn given all other latents."""
        return {name: self._levels(latents, rows).effects(normals[name]) for name in self.integrated}

    @property
    def normal_groups(self) -> tuple[str, ...]:
        """The effects of each group, for a normal outcome with several groups of independent effects that are `centred`."""
        if not self.plan.has_normal_units:
            return ()
        return tuple("local" if group.is_local else group.effects for group in self.plan.main.groups)

    def unit_regression(self, group: str, latents: Latents, rows: Rows) -> Regression:
        """Regress each outcome, less the rest of its predictor, on the columns that the effects of a group multiply."""
        own = self._group_of(group)
        others = {**latents, own.effects: jnp.zeros_like(latents[own.effects])}
        return conditionals.regression(own, rows["outcome"] - self._predictor(others, rows), latents, rows)

    def unit_prior(self, group: str, latents: Latents) -> Float[Array, " unit"]:
        """Return the log prior of the effects of each level."""
        return conditionals.prior_of_units(self._group_of(group), latents)

    def _group_of(self, unit: str) -> Group:
        return next(g for g in self.plan.main.groups if unit == ("local" if g.is_local else g.effects))

    def rest_sums(self, latents: Latents, rows: Rows, is_row: Bool[Array, " rows"]) -> Latents:
        """Return products of the columns with each other and with the residuals, and the squares of these."""
        return conditionals.sums(self.plan.main, rows["outcome"] - self._predictor(latents, rows), rows, is_row)

    def redraw_rest(self, key: Key[Array, ""], latents: Latents, sums: Latents) -> Latents:
        """Draw intercept and coefficients, and all standard deviations."""
        return conditionals.redraw_others(key, self.plan, self._parts(), latents, sums)

    def redraw(self, key: Key[Array, ""], latents: Latents) -> Latents:
        """Redraw shifts between the intercept and the effects of each group."""
        return conditionals.shift(key, self.plan, self._parts(), latents) if self.normal_groups else latents

    def _parts(self) -> dict[str, Any]:
        return make_prior(self.plan, self.family, self.options, self.spec.with_dtype("float64"))

    def _predictor(self, latents: Latents, rows: Rows) -> Float[Array, "rows ..."]:
        """Return the linear predictor, (rows,), or (rows, level - 1) for a categorical outcome."""
        return self.plan.main.of_rows(latents, rows, rows.get("offset"))

    def _parameters(self, latents: Latents, rows: Rows) -> dict[str, Array]:
        """Return the parameters of the family: one number, or one for each row."""
        return partial.with_known_error(self.plan.values(latents, rows), rows)

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each row's outcome, in nats, times its weight; or that of condensed rows."""
        if ROOT in rows:
            return self._of_sums(latents, rows)
        eta, parameters = self._predictor(latents, rows), self._parameters(latents, rows)
        value = self.family.log_density(eta, rows, parameters)
        if "constant" in rows:
            value = value + rows["constant"]
        value = partial.log_likelihood(self.family, value, eta, rows, parameters, is_one_sided=self.is_one_sided)
        return value * rows["weights"] if "weights" in rows else value

    def _of_sums(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log likelihood of the rows for which each condensed one stands, of normal outcomes."""
        sigma = latents["sigma"]
        if not self.integrated:
            layout = Layout(self.plan.main.has_intercept, len(self.plan.main.sd), self.plan.main.groups)
            values = layout.log_likelihood(self._line(latents), self._effects(latents, rows), rows, sigma)
        else:
            values = log_density(self._levels(latents, rows))
        return values - rows["num_rows"] * (jnp.log(sigma) + 0.5 * math.log(2 * math.pi))

    def _levels(self, latents: Latents, rows: Rows) -> Levels:
        """Return the sums that effects are integrated out from."""
        main, group = self.plan.main, self.plan.integrated
        assert group is not None  # because the rows are condensed for it
        layout = Layout(main.has_intercept, len(main.sd), tuple(g for g in main.groups if g != group))
        return sums_of_levels(layout, group, self._line(latents), self._effects(latents, rows), latents, rows)

    def _line(self, latents: Latents) -> Float[Array, " c"]:
        """Return intercept and standardised coefficients less those of the quick fit."""
        dtype = latents["sigma"].dtype
        return self.plan.main.line(latents, dtype) - jnp.asarray(self.spec.arrays["location"], dtype)

    def _effects(self, latents: Latents, rows: Rows) -> dict[str, Array]:
        """Return the effects of the groups that are sampled, for each condensed row."""
        groups = (group for group in self.plan.main.groups if group.effects not in self.integrated)
        return {
            g.effects: latents[g.effects] if g.is_local else latents[g.effects][rows[f"group_{g.number}"]]
            for g in groups
        }

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of each row's outcome."""
        eta, parameters = self._predictor(latents, inputs), self._parameters(latents, inputs)
        found = self.family.predict(eta, inputs, parameters)
        return partial.Truncated(found, self.family, eta, inputs, parameters) if "lower" in inputs else found

    def linear_predictor(self, latents: Latents, inputs: Rows) -> Float[Array, "rows ..."]:
        """Return the linear predictor of each row, in the unit in which the model reads the outcome."""
        return self._predictor(latents, inputs)

    def completed_outcome(self, latents: Latents, rows: Rows, key: PRNGKeyArray) -> Array | None:
        """Return the outcome of each row, drawn given what is known of it where it is censored; None if no row is."""
        if self.options.censored is None:
            return None
        eta, parameters = self._predictor(latents, rows), self._parameters(latents, rows)
        return partial.completed(self.family, eta, rows, parameters, key)

    def interactions(self) -> Collection[tuple[str, ...]]:
        """Return the columns of each term with several of them."""
        formulas = [predictor.formula for predictor in self.plan.predictors]
        of_terms = (dict.fromkeys(n for factor in term for n in factor.names) for f in formulas for term in f.terms)
        return {tuple(names) for names in of_terms if len(names) > 1}

    def grouping_columns(self) -> Mapping[str, str]:
        """Return the columns with group effects, except those that have coefficients as well."""
        found: dict[str, str] = {}
        other: set[str] = set()
        for predictor in self.plan.predictors:
            formula = predictor.formula
            inside = (term for group in formula.groups for term in group.terms)
            other |= {name for term in (*formula.terms, *inside) for factor in term for name in factor.names}
            for term, group in zip(formula.groups, predictor.groups, strict=True):
                found.setdefault(term.group, group.effects)
        return {column: effects for column, effects in found.items() if column not in other}

    def group_effects(self) -> Collection[str]:
        """Return the effects of all groups, in the predictors of parameters as well."""
        return [group.effects for predictor in self.plan.predictors for group in predictor.groups]

    def with_new_levels(self, latents: Latents, added: Mapping[str, int], key: PRNGKeyArray) -> Latents:
        """Return latents with effects of new levels, drawn from the normal distribution of the effects of a level."""
        found = dict(latents)
        for i, predictor in enumerate(self.plan.predictors):
            # The keys of groups count from 0.
            own = jax.random.fold_in(key, 2**31 + i) if i else key
            found |= predictor.with_new_levels(latents, added, own)
        return found

    def outcome(self, rows: Rows) -> Shaped[Array, " rows"]:
        """Return the outcome of each row: a number, or the code of a level."""
        return rows["outcome"]

    def outcome_field(self) -> str | None:
        """Return the column on the left of the tilde; None if it is transformed."""
        outcome = self.plan.formula.outcome
        return outcome.names[0] if outcome.is_plain else None

    def prediction_fields(self) -> set[str]:
        """Return the columns of the right side of the formula, and those of offset, exposure and trials."""
        own = with_roles(self.options, self.spec)
        columns = set().union(*(predictor.formula.predictors for predictor in self.plan.predictors))
        columns |= partial.needed_for_predictions(own)
        return columns | {name for name in (own.offset, own.exposure, own.trials) if name}

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return coefficients by term, the intercept where all columns are 0, other parameters, and the predictor."""
        plan, found = self.plan, {k: v for k, v in latents.items() if k in self.plan.parameters}
        found |= plan.main.of_terms(latents)
        if plan.has_sigma_in_table:
            found[SIGMA] = latents["sigma"] * plan.unit[1]
        if self.family.has_cutpoints:
            found[CUTPOINTS] = self.family.cutpoints(latents) + plan.main.at_mean(latents)
        found |= plan.main.of_groups(latents)
        for predictor in plan.others.values():
            found |= predictor.of_terms(latents) | predictor.of_groups(latents)
        return {**found, "predictor": self._predictor(latents, rows)}
