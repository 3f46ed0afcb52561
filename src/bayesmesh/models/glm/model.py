"""Generalised linear models with group effects, from a formula.

Columns are computed once on the host and standardised there; coefficients and effects are in the units of the data.
`coordinates` describes the coordinates in which they are sampled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

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
    Rows,
    Shown,
)
from bayesmesh.models.glm.coefficients import original_of
from bayesmesh.models.glm.condensed import ROOT, Layout
from bayesmesh.models.glm.description import axes_of, describe, shown_of
from bayesmesh.models.glm.design import latent_name
from bayesmesh.models.glm.families.base import family_of
from bayesmesh.models.glm.priors import GlmPrior, make_prior
from bayesmesh.models.glm.rows import ROLES, Plan, make_plan, prepare_table, with_roles
from bayesmesh.models.options import GlmOptions as Options


class Glm(Model):
    """A regression of one column on others.

    Reads the columns that its formula names. Latents: ``intercept`` at the means of the columns, ``coefficients`` in the
    order of the columns, parameters of the family, and for each group ``sd_GROUP``, ``correlation_GROUP`` and
    ``effects_GROUP``, in the unit of the predictor.
    """

    pretty_name = "Generalised linear model"
    offers = ()
    reads_roles = ROLES
    options: Options

    def __init__(self, options: Settings, spec: DataSpec) -> None:
        super().__init__(options, spec)
        own = self.options
        self.family = family_of(own.family, own.link)
        self.plan: Plan = make_plan(own, spec)
        self.original = original_of(self.plan, spec, self.family)
        local = self.plan.local
        self.local_latents = {} if local is None else {local.effects: 0}  # type: ignore[misc]  # by option, not by class

    @classmethod
    def prepare(cls, options: Settings, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation | None:
        """Replace fields by the columns that are computed from them, with their means and standard deviations.

        Raises:
            ConfigError: the formula does not fit the data; names the key, and the row where one is at fault.
        """
        return prepare_table(options, spec, read_blocks)

    def axes(self) -> Mapping[str, tuple[Axis | None, ...]]:
        """Return the names of columns, levels and effects."""
        return axes_of(self.plan, self.spec, self.original)

    def shown(self) -> Sequence[Shown]:
        """Return coefficients in the units of the table, parameters of the family, and group effects."""
        return shown_of(self.plan, self.family, self.original)

    def described(self) -> Mapping[str, object]:
        """Return family, link, priors, the unit of effects, the effects of changes in predictors, and alternatives."""
        return describe(self.plan, self.family, self.options, self.spec, self.original)

    @property
    def has_unit_scale(self) -> bool:
        """Whether there was a quick fit, and no second group whose effects may be correlated with the first's."""
        groups = self.plan.groups
        return "location" in self.spec.arrays and len(groups) < 2 and all(g.is_centred is None for g in groups)

    def prior(self, data_spec: DataSpec) -> Prior:
        """Return the priors by name; those that are not given are scaled to the data."""
        return GlmPrior(make_prior(self.plan, self.family, self.options, data_spec), self.plan, self.family, data_spec)

    def _predictor(self, latents: Latents, rows: Rows) -> Float[Array, "rows ..."]:
        """Return the linear predictor, (rows,), or (rows, level - 1) for a categorical outcome."""
        plan, like = self.plan, next(iter(latents.values()))
        shape = (len(rows["outcome"]), *plan.output_shape)
        eta = jnp.zeros(shape, like.dtype)
        if plan.has_intercept:
            eta = eta + jnp.broadcast_to(latents["intercept"], shape)
        if plan.columns:
            eta = eta + rows["design"] @ (plan.coefficients(latents) * plan.over_outputs(plan.sd, like.dtype))
        if "offset" in rows:
            eta = eta + rows["offset"].reshape(-1, *(1 for _ in plan.output_shape))
        for group in plan.groups:
            eta = eta + group.of_rows(latents, rows)
        return eta

    def log_likelihood(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log density of each row's outcome, in nats, times its weight; or that of condensed rows."""
        if ROOT in rows:
            return self._of_cells(latents, rows)
        value = self.family.log_density(self._predictor(latents, rows), rows, latents)
        if "constant" in rows:
            value = value + rows["constant"]
        return value * rows["weights"] if "weights" in rows else value

    def _of_cells(self, latents: Latents, rows: Rows) -> Float[Array, " rows"]:
        """Return the log likelihood of cells of normal outcomes."""
        plan, sigma = self.plan, latents["sigma"]
        effects = {}
        for group in plan.groups:
            own = latents[group.effects]
            effects[group.effects] = own if group.is_local else own[rows[f"group_{group.number}"]]
        layout = Layout(plan.has_intercept, len(plan.sd), plan.groups)
        line = plan.line(latents, sigma.dtype) - jnp.asarray(self.spec.arrays["location"], sigma.dtype)
        return layout.log_likelihood(line, effects, rows, sigma)

    def predict(self, latents: Latents, inputs: Rows) -> Predictive:
        """Return the distribution of each row's outcome."""
        return self.family.predict(self._predictor(latents, inputs), inputs, latents)

    def linear_predictor(self, latents: Latents, inputs: Rows) -> Float[Array, "rows ..."]:
        """Return the linear predictor of each row, in the unit in which the model reads the outcome."""
        return self._predictor(latents, inputs)

    def interactions(self) -> Collection[tuple[str, ...]]:
        """Return the columns of each term with several of them."""
        of_terms = (dict.fromkeys(n for factor in term for n in factor.names) for term in self.plan.formula.terms)
        return {tuple(names) for names in of_terms if len(names) > 1}

    def grouping_columns(self) -> Mapping[str, str]:
        """Return the columns with group effects, except those that have coefficients as well."""
        formula = self.plan.formula
        inside = (term for group in formula.groups for term in group.terms)
        other = {name for term in (*formula.terms, *inside) for factor in term for name in factor.names}
        pairs = zip(formula.groups, self.plan.groups, strict=True)
        return {term.group: group.effects for term, group in pairs if term.group not in other}

    def with_new_levels(self, latents: Latents, added: Mapping[str, int], key: PRNGKeyArray) -> Latents:
        """Return latents with effects of new levels, drawn from the normal distribution of the effects of a level."""
        found = dict(latents)
        for term, group in zip(self.plan.formula.groups, self.plan.groups, strict=True):
            if number := added.get(term.group, 0):
                own = jax.random.fold_in(key, group.number)
                found[group.effects] = group.with_new_levels(latents, number, own)
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
        return self.plan.formula.predictors | {name for name in (own.offset, own.exposure, own.trials) if name}

    def summaries(self, latents: Latents, rows: Rows) -> Latents:
        """Return coefficients by term, the intercept where all columns are 0, other parameters, and the predictor."""
        plan, found = self.plan, {k: v for k, v in latents.items() if k in self.plan.parameters}
        if plan.columns:
            coefficients = plan.coefficients(latents)
            for columns, part in zip(plan.columns, plan.parts.values(), strict=True):
                # A single number needs no axis.
                found[f"b_{latent_name(columns.name)}"] = coefficients[part.start if columns.is_single else part]
        if plan.has_intercept:
            mean = plan.over_outputs(plan.mean, latents["intercept"].dtype)
            shift = jnp.sum(plan.coefficients(latents) * mean, axis=0) if plan.columns else 0
            # Not the latent's name, which stands for a different number in the same table.
            found["intercept_at_zero"] = latents["intercept"] - shift
        if self.original is not None:
            coefficients = plan.coefficients(latents) if plan.columns else jnp.zeros((0, *plan.output_shape))
            found |= self.original.summaries(coefficients, found.get("intercept_at_zero", 0.0), latents)
        for group in plan.groups:
            found |= group.summaries(latents)
        return {**found, "predictor": self._predictor(latents, rows)}
