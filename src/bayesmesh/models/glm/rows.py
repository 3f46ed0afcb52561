"""Rows of a table as a linear model reads them: outcome, standardised columns, offset, weights and group codes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import DataSpec, FieldSpec, HostRows, Latents, Preparation, ReadBlocks
from bayesmesh.models.glm import refusals
from bayesmesh.models.glm.design import (
    LARGEST,
    MOST_COLUMNS,
    Columns,
    Source,
    block_of,
    evaluate_columns,
    levels_of,
    make_columns,
    refuse_categories,
)
from bayesmesh.models.glm.families import FAMILIES, LOG_LINKS, Family, outcome_of
from bayesmesh.models.glm.formula import KEY, Formula, GroupTerm, parse_formula
from bayesmesh.models.glm.groups import Group
from bayesmesh.models.glm.moments import Moments, moments_of
from bayesmesh.models.glm.reduction import Reduction, choose_local
from bayesmesh.models.glm.unused_levels import find_unused, warn_of_unused

ROLES = ("weights", "offset", "exposure")
"""Roles of columns, which the data may give and the options of the model may name."""


class Plan(NamedTuple):
    """The plan by which the fields of the prepared rows enter the predictor.

    Attributes:
        formula: formula of the model.
        columns: population-level columns, by term.
        mean, sd: means and standard deviations of the columns over the training rows; means are 0 without an intercept.
        groups: group effects.
        num_levels: number of levels of the outcome if it is a category; else 0.
        output_shape: shape of one row's predictor.
        parameters: latents of the family.
        blocks: latent -> indices of the columns whose coefficients it holds.
    """

    formula: Formula
    columns: tuple[Columns, ...]
    mean: np.ndarray
    sd: np.ndarray
    groups: tuple[Group, ...]
    num_levels: int
    output_shape: tuple[int, ...]
    parameters: tuple[str, ...]
    blocks: Mapping[str, tuple[int, ...]]

    @property
    def has_intercept(self) -> bool:
        """Whether there is an intercept: an ordinal outcome has cutpoints instead."""
        return self.formula.has_intercept and "baseline" not in self.parameters

    @property
    def local(self) -> Group | None:
        """The group effects that are stored with their rows."""
        return next((group for group in self.groups if group.is_local), None)

    @property
    def parts(self) -> dict[str, slice]:
        """Return term -> its columns."""
        ends = np.cumsum([len(each.labels) for each in self.columns]).tolist()
        return {c.name: slice(end - len(c.labels), end) for c, end in zip(self.columns, ends, strict=True)}

    def coefficients(self, latents: Latents) -> Float[Array, "column ..."]:
        """Return the coefficients of all columns, in the units of the data."""
        together = jnp.concatenate([latents[name] for name in self.blocks])
        order = np.argsort(np.concatenate([self.blocks[name] for name in self.blocks]))
        return together if (order == np.arange(len(order))).all() else together[order]

    def line(self, latents: Latents, dtype: Any) -> Float[Array, " c"]:
        """Return the intercept, if there is one, and standardised coefficients, for one predictor per row."""
        parts = [latents["intercept"][None]] if self.has_intercept else []
        parts += [self.coefficients(latents) * jnp.asarray(self.sd, dtype)] if self.columns else []
        return jnp.concatenate([jnp.zeros(0, dtype), *parts])

    def over_outputs(self, values: np.ndarray, dtype: Any) -> Float[Array, "column ..."]:
        """Return one number per column, with axes of length 1 for the outputs."""
        return jnp.asarray(values, dtype).reshape(-1, *(1 for _ in self.output_shape))


def make_plan(options: Any, spec: DataSpec, fields: Mapping[str, FieldSpec]) -> Plan:
    """Return the plan for prepared data.

    Args:
        options: options of the model.
        spec: description of the prepared data, whose constants hold what was found in the rows.
        fields: fields of the source.

    Raises:
        ConfigError: the formula does not fit the columns.
    """
    family, options = FAMILIES[options.family], with_roles(options, spec)
    formula, columns = _read(options, spec, fields)
    num_columns = sum(len(each.labels) for each in columns)
    mean, sd = (
        np.array([spec.constants[f"{what}_of_column_{i}"] for i in range(num_columns)]) for what in ("mean", "sd")
    )
    num_levels = int(spec.constants.get("outcome_levels", 0))
    groups = [
        Group.make(i, term, effect_columns(Source(fields, spec.variables, spec.labels), term), spec.constants, options)
        for i, term in enumerate(formula.groups)
    ]  # fmt: skip
    output_shape = (num_levels - 1,) if options.family == "categorical" else ()
    names = [c.name for c in columns for _ in c.labels]
    blocks: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        blocks.setdefault(block_of(options.priors, name), []).append(i)
    return Plan(
        formula, tuple(columns), mean, sd, tuple(groups), num_levels, output_shape, tuple(family.parameters),
        {name: tuple(indices) for name, indices in blocks.items()},
    )  # fmt: skip


def with_roles(options: Any, spec: DataSpec) -> Any:
    """Return the options, completed by the columns to which the data give a role, where the model names none.

    Raises:
        ConfigError: model and data name different columns.
    """
    for role, name in spec.roles.items():
        own = _named(options)[role]
        if own not in (None, name):
            raise ConfigError(
                f"key 'model.{role}': '{own}', where the data have '{name}' in the key 'data.{role}'",
                "remove one of the two",
            )
    return options.model_copy(update=dict(spec.roles))


def _named(options: Any) -> dict[str, str | None]:
    """Return the options that name columns; `getattr` with computed names would make all code part of the model's identity."""
    return dict(options.model_dump(include={*ROLES, "trials"}))


def effect_columns(source: Source, term: GroupTerm) -> list[Columns]:
    """Return the columns that the effects of a group multiply, without the intercept."""
    return make_columns(source, term.terms[() in term.terms :], has_intercept=() in term.terms)


def _read(options: Any, spec: DataSpec, fields: Mapping[str, FieldSpec]) -> tuple[Formula, list[Columns]]:
    """Return the formula and its columns, after checking the columns that other options name."""
    if not fields:
        raise ConfigError("model 'glm' reads rows as its `prepare` makes them", "bind it to prepared data")
    named = _named(options)
    for key, name in named.items():
        if name is None:
            continue
        if name not in fields:
            raise ConfigError(f"key 'model.{key}': no column '{name}' in the data", suggest(name, fields))
        about = spec.variables.get(name)
        if about is not None and (about.kind == "category" or (about.mean, about.scale) != (0.0, 1.0)):
            how = "a category" if about.kind == "category" else "standardised"
            raise ConfigError(f"key 'model.{key}': '{name}' is {how}", "use a column of numbers as they are")
    if named["exposure"] is not None and options.family not in LOG_LINKS:
        raise ConfigError(
            f"key 'model.exposure': the predictor of the family {options.family} is not a log of a mean",
            f"use it with {', '.join(LOG_LINKS)}",
        )
    if (options.family == "binomial") != (options.trials is not None):
        problem = (
            "the binomial family needs the number of trials"
            if options.trials is None
            else "only the binomial family has trials"
        )
        raise ConfigError(f"key 'model.trials': {problem}", "name a column, or use another family")
    formula = parse_formula(options.formula, list(fields))
    source = Source(fields, spec.variables, spec.labels)
    refuse_categories(source, formula.outcome)
    if FAMILIES[options.family].takes_levels:
        refusals.check_kind(formula.outcome.text, options.family, spec.variables)
    has_intercept = formula.has_intercept or options.family == "ordinal"
    columns = make_columns(source, formula.terms, has_intercept=has_intercept)
    if (number := sum(len(each.labels) for each in columns)) > MOST_COLUMNS:
        largest = max(columns, key=lambda each: len(each.labels))
        raise ConfigError(f"{KEY}: {number:,} columns, of which '{largest.name}' has {len(largest.labels):,}", f"use effects of groups for many levels: (1 | {largest.name})")  # fmt: skip
    refusals.check_terms(formula, columns, options.family)
    names = {g.group for g in formula.groups}
    centred = options.centred if isinstance(options.centred, tuple) else ()
    for key, given in (("centred", centred), ("local_group", (options.local_group,))):
        for name in given:
            if name not in names and not (key == "local_group" and name in ("auto", "none")):
                raise ConfigError(f"key 'model.{key}': '{name}' has no effects in the formula", suggest(name, names))
    return formula, columns


def prepare_table(options: Any, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation:
    """Return how rows become fields, with the moments of columns and outcomes; see `Glm.prepare`."""
    options = with_roles(options, spec)
    formula, columns = _read(options, spec, spec.fields)
    family, source = FAMILIES[options.family], Source(spec.fields, spec.variables, spec.labels)
    effects = [effect_columns(source, term) for term in formula.groups]
    reader = _Reader(options, formula, tuple(columns), tuple(map(tuple, effects)), family, spec)
    constants = reader.describe(read_blocks)
    local = choose_local(options, formula, constants)
    mean, sd = (
        np.array([constants[f"{what}_of_column_{i}"] for i in range(sum(len(c.labels) for c in columns))]) for what in ("mean", "sd")
    )  # fmt: skip
    constants["local_group"] = -1 if local is None else local

    def of_rows(rows: HostRows, num_rows: int) -> dict[str, np.ndarray]:
        return reader.fields(rows, num_rows, mean, sd, local)

    def read_fields() -> Iterator[HostRows]:
        for rows in read_blocks():
            yield reader.fields(rows, len(next(iter(rows.values()))), mean, sd, None)

    reduction = Reduction(options, formula, tuple(columns), tuple(map(tuple, effects)), family, constants, local)
    arrays = reduction.fit(read_fields)
    condense = functools.partial(reduction.condense, read_fields, arrays, spec.num_rows)
    if local is None:
        return Preparation(of_rows, constants, arrays=arrays, condense=condense)
    group, num_levels = formula.groups[local].group, int(constants[f"levels_of_group_{local}"])
    return Preparation(of_rows, constants, group, num_levels, arrays, condense)


class _Reader(NamedTuple):
    """Computes fields from rows of the source."""

    options: Any
    formula: Formula
    columns: tuple[Columns, ...]
    effects: tuple[tuple[Columns, ...], ...]
    family: Family
    spec: DataSpec

    def describe(self, read_blocks: ReadBlocks) -> dict[str, float | int]:
        """Return moments and numbers of levels, after checking every row.

        Raises:
            ConfigError: a value cannot be an outcome, a count or a group code, or is not finite; names the row.
        """
        coded = {"outcome": self.formula.outcome.text} | {f"{i}": g.group for i, g in enumerate(self.formula.groups)}
        # Codes that occur only in held-out rows count too.
        most = {key: self.spec.fields[name].num_codes for key, name in coded.items() if name in self.spec.fields}
        numbers = [*(f"column {label}" for c in self.columns for label in c.labels)]
        effects = sum(len(c.labels) for part in self.effects for c in part)
        seen = np.zeros(0)

        def blocks() -> Iterator[np.ndarray]:
            nonlocal seen
            start = 0
            for rows in read_blocks():
                num_rows = len(next(iter(rows.values())))
                outcome = self._outcome(rows, start)
                parts = [evaluate_columns(self.columns, rows, num_rows)]
                parts += [evaluate_columns(part, rows, num_rows) for part in self.effects]
                refusals.check_signs(_named(self.options), rows, start)
                offset = self._offset(rows)
                offset = np.zeros(num_rows) if offset is None else offset
                named = self.options.trials
                trials = np.ones(num_rows) if named is None else np.asarray(rows[named], float)
                block = np.concatenate([*parts, outcome[:, None], offset[:, None], trials[:, None]], axis=1)
                self._check_finite(block, numbers, start)
                for i, group in enumerate(self.formula.groups):
                    codes = refusals.group_codes(group.group, np.asarray(rows[group.group]), start)
                    most[f"{i}"] = max(most.get(f"{i}", 0), int(codes.max(initial=0)) + 1)
                most["outcome"] = max(most.get("outcome", 0), int(outcome.max(initial=0)) + 1)
                seen = np.union1d(seen, outcome) if self.family.takes_levels else seen
                start += num_rows
                yield block

        found = moments_of(blocks())
        return self._constants(found, most, len(numbers), effects, read_blocks) | self._levels(seen, most["outcome"])

    def _constants(
        self, found: Moments, most: Mapping[str, int], num_columns: int, num_effects: int, read_blocks: ReadBlocks
    ) -> dict[str, float | int]:
        constants: dict[str, float | int] = {}
        centre = self.formula.has_intercept or self.options.family == "ordinal"
        labels = [label for c in self.columns for label in c.labels]
        constant = [i for i in range(num_columns) if not found.sd[i] > 1e-12 * abs(found.mean[i])]
        constant = [i for i in constant if centre or not found.mean[i]]
        unused = find_unused(self.columns, constant, read_blocks)
        for i, label in enumerate(labels):
            if i in constant and i not in unused:
                raise refusals.without_spread(f"'{label}'", found.mean[i], "leave it out")
            constants[f"mean_of_column_{i}"] = float(found.mean[i]) if centre else 0.0
            constants[f"sd_of_column_{i}"] = (
                unused[i].size if i in unused else float(found.sd[i]) or float(abs(found.mean[i]))
            )
        constants |= {f"is_unused_{i}": 1 for i in unused}
        warn_of_unused(unused.values())
        for i in range(num_effects):
            j = num_columns + i
            constants[f"size_of_effect_{i}"] = float(np.hypot(found.mean[j], found.sd[j])) or 1.0
        mean, offset, trials = found.mean[-3:].tolist()
        refusals.check_trials(self.options.trials, trials)
        # Without an intercept, coefficients, effects or sigma also have to account for the mean.
        scale = float(np.hypot(0.0 if self.formula.has_intercept else mean - offset, found.sd[-3])) or 1.0
        constants |= {"outcome_mean": mean, "outcome_scale": scale, "offset_mean": offset, "trials_mean": trials}
        widths = [sum(len(c.labels) for c in part) for part in self.effects]
        for i, group in enumerate(self.formula.groups):
            constants[f"first_effect_of_group_{i}"] = sum(widths[:i])
            about = self.spec.variables.get(group.group)
            constants[f"levels_of_group_{i}"] = len(about.levels) if about and about.levels else most[f"{i}"]
        self._check_spread(found)
        return constants

    def _levels(self, seen: np.ndarray, num_codes: int) -> dict[str, int]:
        """Return the number of levels of the outcome, if its family takes levels, given the codes that occur in the rows."""
        if not self.family.takes_levels:
            return {}
        name, levels = self.formula.outcome.text, levels_of(self.source, self.formula.outcome)
        number = len(levels) if levels else num_codes
        if number < 2:
            raise ConfigError(f"{KEY}: '{name}' has one level", "use another outcome")
        if not levels:
            refusals.check_codes(name, seen, number)
        elif self.options.family == "ordinal":
            refusals.check_order(name, self.spec.variables[name])
        return {"outcome_levels": number}

    def _check_spread(self, found: Moments) -> None:
        """Refuse a real outcome without spread: its scale would shrink towards 0 without end."""
        mean, sd, what = found.mean[-3], found.sd[-3], f"the outcome '{self.formula.outcome.text}'"
        if found.num_rows > 1 and not self.family.is_discrete and not sd > 1e-12 * abs(mean):
            raise refusals.without_spread(what, mean, "use another outcome")

    @property
    def source(self) -> Source:
        """Columns of the source."""
        return Source(self.spec.fields, self.spec.variables, self.spec.labels)

    def _outcome(self, rows: HostRows, start: int) -> np.ndarray:
        """Return the outcomes of some rows, float64, after checking them."""
        name = self.formula.outcome.text
        y = self.formula.outcome.evaluate(rows)
        if y.ndim != 1:
            raise ConfigError(f"{KEY}: the outcome '{name}' has several numbers in a row", "name a column")
        trials = None if self.options.trials is None else np.asarray(rows[self.options.trials], float)
        levels = levels_of(self.source, self.formula.outcome)
        if levels and not self.family.takes_levels and not (self.options.family == "bernoulli" and len(levels) == 2):
            raise ConfigError(f"{KEY}: '{name}' is a category of {len(levels)} levels; family {self.options.family} takes {self.family.needs}", "use another family: " + ("bernoulli, " if len(levels) == 2 else "") + "categorical or ordinal")  # fmt: skip
        possible = self.family.fits(y, trials)
        if not possible.all():
            row = int(np.argmin(possible))
            of = "" if trials is None else f" of {trials[row]:g} trials"
            raise ConfigError(f"{KEY}: training row {start + row + 1}: '{name}' is {y[row]:g}{of}; family {self.options.family} takes {self.family.needs}", "correct the data, or use another family")  # fmt: skip
        if self.family.is_discrete:
            refusals.check_counts({name: y} | ({} if trials is None else {str(self.options.trials): trials}), start)
        return y

    def _check_finite(self, block: np.ndarray, names: list[str], start: int) -> None:
        for row, column in np.argwhere(~(np.abs(block) <= LARGEST))[:1]:
            what = names[column] if column < len(names) else "an effect of a group, the outcome or the offset"
            remedy = f"use a transform that is finite, and at most {LARGEST:g}, such as log1p instead of log"
            raise ConfigError(f"{KEY}: training row {start + row + 1}: {what} is {block[row, column]:g}", remedy)

    def _offset(self, rows: HostRows) -> np.ndarray | None:
        """Return the number added to the predictor of each row, float64; None if nothing is added."""
        options = self.options
        parts = [] if options.offset is None else [np.asarray(rows[options.offset], float)]
        parts += [] if options.exposure is None else [np.log(np.asarray(rows[options.exposure], float))]
        return sum(parts[1:], start=parts[0]) if parts else None

    def fields(
        self, rows: HostRows, num_rows: int, mean: np.ndarray, sd: np.ndarray, local: int | None
    ) -> dict[str, np.ndarray]:
        """Return the prepared fields of some rows."""
        options, y = self.options, self.formula.outcome.evaluate(rows)
        trials = None if options.trials is None else np.asarray(rows[options.trials], float)
        made = {"outcome": outcome_of(y, self.family)}
        if len(mean):
            made["design"] = (evaluate_columns(self.columns, rows, num_rows) - mean) / sd
        if (offset := self._offset(rows)) is not None:
            made["offset"] = offset
        if options.weights is not None:
            made["weights"] = np.asarray(rows[options.weights], float)
        if trials is not None:
            made["trials"] = refusals.whole_trials(options.trials, trials)
        if (constant := self.family.constant(y, trials)) is not None:
            made["constant"] = constant
        for i, (group, columns) in enumerate(zip(self.formula.groups, self.effects, strict=True)):
            if i != local:
                made[f"group_{i}"] = np.asarray(rows[group.group]).astype(np.int32)
            if columns:
                made[f"effects_{i}"] = evaluate_columns(columns, rows, num_rows)
        return made
