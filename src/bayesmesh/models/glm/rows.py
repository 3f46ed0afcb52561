"""Rows of a table as a linear model reads them: outcome, standardised columns, offset, weights and group codes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.config.data_spec import FieldSpec
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Condensed, DataSpec, HostRows, Latents, Preparation, ReadBlocks
from bayesmesh.models.glm import checks
from bayesmesh.models.glm.condensed import Layout, condense_normal, condense_same
from bayesmesh.models.glm.design import (
    LARGEST,
    MOST_COLUMNS,
    Columns,
    Group,
    Source,
    block_of,
    check_numbers,
    evaluate_columns,
    latent_name,
    levels_of,
    make_columns,
)
from bayesmesh.models.glm.families.base import Family, family_of, outcome_of
from bayesmesh.models.glm.fit import fit, fit_levels
from bayesmesh.models.glm.formula import KEY, Formula, parse_formula
from bayesmesh.models.glm.moments import Moments, moments_of

ROLES = ("weights", "offset", "exposure")
"""Roles of columns, which the data may give and the options of the model may name."""


MANY_LEVELS = 1000
"""Number of levels from which the effects of a group are stored with their rows."""


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


def make_plan(options: Any, spec: DataSpec) -> Plan:
    """Return the plan for prepared data.

    Args:
        options: options of the model.
        spec: description of the prepared data, whose constants hold what was found in the rows.

    Raises:
        ConfigError: the formula does not fit the columns.
    """
    reader = make_reader(options, spec, spec.source_fields)
    mean, sd = reader.moments(spec.constants)
    num_levels = int(spec.constants.get("outcome_levels", 0))
    output_shape = reader.family.output_shape(num_levels)
    blocks: dict[str, list[int]] = {}
    for i, name in enumerate(each.name for each in reader.columns for _ in each.labels):
        blocks.setdefault(block_of(options.priors, name), []).append(i)
    return Plan(
        reader.formula, reader.columns, mean, sd, reader.groups(spec.constants), num_levels, output_shape,
        tuple(reader.family.parameters), {name: tuple(indices) for name, indices in blocks.items()},
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
    """Return the options that name columns."""
    return {key: getattr(options, key) for key in (*ROLES, "trials")}


def make_reader(options: Any, spec: DataSpec, fields: Mapping[str, FieldSpec]) -> Reader:
    """Return the formula with its columns, after checking the columns that other options name.

    Args:
        options: options of the model.
        spec: description of the data.
        fields: fields of the source.

    Raises:
        ConfigError: the formula does not fit the columns, or an option does not fit the formula.
    """
    options = with_roles(options, spec)
    family = family_of(options.family, options.link)
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
    if named["exposure"] is not None and family.link != "log":
        raise ConfigError(
            f"key 'model.exposure': the predictor of the family {family.name} is not a log of a mean",
            "use it with a family of a log link, such as poisson",
        )
    if family.has_trials != (options.trials is not None):
        problem = (
            f"the family {family.name} needs the number of trials"
            if options.trials is None
            else f"the family {family.name} has no trials"
        )
        raise ConfigError(f"key 'model.trials': {problem}", "name a column, or use another family")
    formula = parse_formula(options.formula, list(fields))
    source = Source(fields, spec.variables, spec.labels)
    check_numbers(source.variables, formula.outcome)
    if family.takes_levels:
        checks.check_kind(formula.outcome.text, options.family, spec.variables)
    has_intercept = formula.has_intercept or family.is_ordered
    columns = make_columns(source, formula.terms, has_intercept=has_intercept)
    if (number := sum(len(each.labels) for each in columns)) > MOST_COLUMNS:
        largest = max(columns, key=lambda each: len(each.labels))
        raise ConfigError(f"{KEY}: {number:,} columns, of which '{largest.name}' has {len(largest.labels):,}", f"use effects of groups for many levels: (1 | {largest.name})")  # fmt: skip
    checks.check_terms(formula, columns, family)
    names = {g.group for g in formula.groups}
    centred = options.centred if isinstance(options.centred, tuple) else ()
    for key, given in (("centred", centred), ("local_group", (options.local_group,))):
        for name in given:
            if name not in names and not (key == "local_group" and name in ("auto", "none")):
                raise ConfigError(f"key 'model.{key}': '{name}' has no effects in the formula", suggest(name, names))
    effects = [
        make_columns(source, term.terms[() in term.terms :], has_intercept=() in term.terms) for term in formula.groups
    ]
    return Reader(options, family, source, formula, tuple(columns), tuple(map(tuple, effects)))


def prepare_table(options: Any, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation:
    """Return how rows become fields, with the moments of columns and outcomes; see `Glm.prepare`."""
    reader = make_reader(options, spec, spec.fields)
    constants = reader.describe(read_blocks)
    local = reader.choose_local(constants)
    constants["local_group"] = -1 if local is None else local
    mean, sd = reader.moments(constants)

    def of_rows(rows: HostRows, num_rows: int) -> dict[str, np.ndarray]:
        return reader.fields(rows, num_rows, mean, sd, local)

    def read_fields() -> Iterator[HostRows]:
        for rows in read_blocks():
            yield reader.fields(rows, len(next(iter(rows.values()))), mean, sd, None)

    arrays = reader.fit(constants, read_fields)
    condense = functools.partial(reader.condense, constants, read_fields, arrays, spec.num_rows)
    if local is None:
        return Preparation(of_rows, constants, arrays=arrays, condense=condense)
    group, num_levels = reader.formula.groups[local].group, int(constants[f"levels_of_group_{local}"])
    return Preparation(of_rows, constants, group, num_levels, arrays, condense)


class Reader(NamedTuple):
    """A formula with the columns of a source that it reads; computes fields from rows.

    Attributes:
        options: options of the model, completed by the columns to which the data give a role.
        family: family of the outcome.
        source: columns of the source.
        formula: formula of the model.
        columns: population-level columns, by term.
        effects: for each group, the columns that its effects multiply, by term, without the intercept.
    """

    options: Any
    family: Family
    source: Source
    formula: Formula
    columns: tuple[Columns, ...]
    effects: tuple[tuple[Columns, ...], ...]

    @property
    def num_columns(self) -> int:
        """Number of population-level columns."""
        return sum(len(each.labels) for each in self.columns)

    @property
    def has_constant(self) -> bool:
        """Whether there is an intercept, or cutpoints in its place."""
        return self.formula.has_intercept or self.family.is_ordered

    def moments(self, constants: Mapping[str, float | int]) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the columns, from the constants of the prepared data."""
        mean, sd = (
            np.array([constants[f"{what}_of_column_{i}"] for i in range(self.num_columns)]) for what in ("mean", "sd")
        )
        return mean, sd

    def groups(self, constants: Mapping[str, float | int]) -> tuple[Group, ...]:
        """Return the group effects, from the constants of the prepared data."""
        found, centred = [], self.options.centred
        for number, (term, columns) in enumerate(zip(self.formula.groups, self.effects, strict=True)):
            has_intercept = () in term.terms
            labels = [label for each in columns for label in each.labels]
            first = int(constants[f"first_effect_of_group_{number}"])
            sizes = [float(constants[f"size_of_effect_{first + i}"]) for i in range(len(labels))]
            if has_intercept:
                labels, sizes = ["intercept", *labels], [1.0, *sizes]
            found.append(
                Group(
                    number, latent_name(term.group), has_intercept, tuple(labels), tuple(sizes),
                    int(constants[f"levels_of_group_{number}"]), term.is_correlated and len(sizes) > 1,
                    term.group in centred if isinstance(centred, tuple) else centred, constants["local_group"] == number,
                )
            )  # fmt: skip
        return tuple(found)

    def choose_local(self, constants: Mapping[str, float | int]) -> int | None:
        """Return the number of the group whose effects are stored with their rows."""
        groups, wanted = self.formula.groups, self.options.local_group
        sizes = [int(constants[f"levels_of_group_{i}"]) for i in range(len(groups))]
        if wanted == "none" or not sizes:
            return None
        if wanted == "auto":
            largest = int(np.argmax(sizes))
            return largest if sizes[largest] >= MANY_LEVELS else None
        return next(i for i, each in enumerate(groups) if each.group == wanted)

    def fit(self, constants: Mapping[str, float | int], read_fields: ReadBlocks) -> Mapping[str, np.ndarray]:
        """Return the arrays of `fit.fit` or, for families of levels, of `fit.fit_levels`.

        Args:
            constants: constants of the prepared data.
            read_fields: returns an iterator over prepared rows in blocks, with the codes of all groups.
        """
        family, has_intercept, scale = self.family, self.formula.has_intercept, float(constants["outcome_scale"])
        if family.takes_levels:
            return fit_levels(family, int(constants["outcome_levels"]), read_fields, self.num_columns)
        mean = float(constants["outcome_mean"] - constants["offset_mean"])
        has_digits = has_intercept or 1 - (mean / scale) ** 2 > checks.LEAST_SPREAD

        def look(group: int, gram: np.ndarray, levels: np.ndarray, num_rows: float) -> None:
            if family.is_in_unit and has_digits and (surplus := checks.surplus_rows(gram, levels, num_rows)):
                number = group if self.formula.groups else None
                checks.warn_of_exact_fit(self.formula, self.options.priors, number, surplus)

        return fit(
            family, self.groups(constants), read_fields, self.num_columns, scale if family.is_in_unit else 1.0,
            mean if family.is_in_unit and has_intercept else 0.0, has_intercept=has_intercept, look=look,
        )  # fmt: skip

    def condense(
        self,
        constants: Mapping[str, float | int],
        read_fields: ReadBlocks,
        arrays: Mapping[str, np.ndarray],
        num_rows: int,
    ) -> Condensed | None:
        """Return rows that each stand for many, see `condensed`; None if they are not fewer."""
        groups = self.groups(constants)
        if self.family.name == "normal":
            layout = Layout(self.formula.has_intercept, self.num_columns, groups)
            return condense_normal(layout, read_fields, num_rows, arrays["location"])
        local = next((group for group in groups if group.is_local), None)
        return condense_same(
            read_fields, None if local is None else local.number, 0 if local is None else local.num_levels
        )

    def describe(self, read_blocks: ReadBlocks) -> dict[str, float | int]:
        """Return moments and numbers of levels, after checking every row.

        Raises:
            ConfigError: a value cannot be an outcome, a count or a group code, or is not finite; names the row.
        """
        coded = {"outcome": self.formula.outcome.text} | {f"{i}": g.group for i, g in enumerate(self.formula.groups)}
        # Codes that occur only in held-out rows count too.
        most = {key: self.source.fields[name].num_codes for key, name in coded.items() if name in self.source.fields}
        names = [f"column {label}" for c in self.columns for label in c.labels]
        seen = np.zeros(0)

        def blocks() -> Iterator[np.ndarray]:
            nonlocal seen
            start = 0
            for rows in read_blocks():
                num_rows = len(next(iter(rows.values())))
                outcome = self._outcome(rows, start)
                parts = [evaluate_columns(self.columns, rows, num_rows)]
                parts += [evaluate_columns(part, rows, num_rows) for part in self.effects]
                checks.check_signs(_named(self.options), rows, start)
                offset = self._offset(rows)
                offset = np.zeros(num_rows) if offset is None else offset
                trials = self._trials(rows)
                trials = np.ones(num_rows) if trials is None else trials
                block = np.concatenate([*parts, outcome[:, None], offset[:, None], trials[:, None]], axis=1)
                self._check_finite(block, names, start)
                for i, group in enumerate(self.formula.groups):
                    codes = checks.group_codes(group.group, np.asarray(rows[group.group]), start)
                    most[f"{i}"] = max(most.get(f"{i}", 0), int(codes.max(initial=0)) + 1)
                most["outcome"] = max(most.get("outcome", 0), int(outcome.max(initial=0)) + 1)
                seen = np.union1d(seen, outcome) if self.family.takes_levels else seen
                start += num_rows
                yield block

        found = moments_of(blocks())
        return self._constants(found, most, read_blocks) | self._levels(seen, most["outcome"])

    def _constants(self, found: Moments, most: Mapping[str, int], read_blocks: ReadBlocks) -> dict[str, float | int]:
        constants: dict[str, float | int] = {}
        labels = [label for c in self.columns for label in c.labels]
        constant = [i for i in range(len(labels)) if not found.sd[i] > 1e-12 * abs(found.mean[i])]
        constant = [i for i in constant if self.has_constant or not found.mean[i]]
        unused = checks.find_unused(self.columns, constant, read_blocks)
        for i, label in enumerate(labels):
            if i in constant and i not in unused:
                raise checks.without_spread(f"'{label}'", found.mean[i], "leave it out")
            constants[f"mean_of_column_{i}"] = float(found.mean[i]) if self.has_constant else 0.0
            constants[f"sd_of_column_{i}"] = (
                unused[i].size if i in unused else float(found.sd[i]) or float(abs(found.mean[i]))
            )
        constants |= {f"is_unused_{i}": 1 for i in unused}
        checks.warn_of_unused(unused.values())
        widths = [sum(len(c.labels) for c in part) for part in self.effects]
        for i in range(sum(widths)):
            j = len(labels) + i
            constants[f"size_of_effect_{i}"] = float(np.hypot(found.mean[j], found.sd[j])) or 1.0
        mean, offset, trials = found.mean[-3:].tolist()
        checks.check_trials(self.options.trials, trials)
        # Without an intercept, coefficients, effects or sigma also have to account for the mean.
        scale = float(np.hypot(0.0 if self.formula.has_intercept else mean - offset, found.sd[-3])) or 1.0
        constants |= {"outcome_mean": mean, "outcome_scale": scale, "offset_mean": offset, "trials_mean": trials}
        for i, group in enumerate(self.formula.groups):
            constants[f"first_effect_of_group_{i}"] = sum(widths[:i])
            about = self.source.variables.get(group.group)
            constants[f"levels_of_group_{i}"] = len(about.levels) if about and about.levels else most[f"{i}"]
        # The scale of a real outcome without spread would shrink towards 0 without end.
        if found.num_rows > 1 and not self.family.is_discrete and not found.sd[-3] > 1e-12 * abs(mean):
            raise checks.without_spread(f"the outcome '{self.formula.outcome.text}'", mean, "use another outcome")
        return constants

    def _levels(self, seen: np.ndarray, num_codes: int) -> dict[str, int]:
        """Return the number of levels of the outcome, if its family takes levels, given the codes that occur in the rows."""
        if not self.family.takes_levels:
            return {}
        name, levels = self.formula.outcome.text, levels_of(self.source.variables, self.formula.outcome)
        number = len(levels) if levels else num_codes
        if number < 2:
            raise ConfigError(f"{KEY}: '{name}' has one level", "use another outcome")
        if not levels:
            checks.check_codes(name, seen, number)
        elif self.family.is_ordered:
            checks.check_order(name, self.source.variables[name])
        return {"outcome_levels": number}

    def _trials(self, rows: HostRows) -> np.ndarray | None:
        """Return the number of trials of each row, float64; None if the family has none."""
        return None if self.options.trials is None else np.asarray(rows[self.options.trials], float)

    def _outcome(self, rows: HostRows, start: int) -> np.ndarray:
        """Return the outcomes of some rows, float64, after checking them."""
        name = self.formula.outcome.text
        y = self.formula.outcome.evaluate(rows)
        if y.ndim != 1:
            raise ConfigError(f"{KEY}: the outcome '{name}' has several numbers in a row", "name a column")
        trials = self._trials(rows)
        levels = levels_of(self.source.variables, self.formula.outcome)
        if levels and not self.family.takes_levels and not (self.family.name == "bernoulli" and len(levels) == 2):
            raise ConfigError(f"{KEY}: '{name}' is a category of {len(levels)} levels; family {self.options.family} takes {self.family.needs}", "use another family: " + ("bernoulli, " if len(levels) == 2 else "") + "categorical or ordinal")  # fmt: skip
        possible = self.family.fits(y, trials)
        if not possible.all():
            row = int(np.argmin(possible))
            of = "" if trials is None else f" of {trials[row]:g} trials"
            raise ConfigError(f"{KEY}: training row {start + row + 1}: '{name}' is {y[row]:g}{of}; family {self.options.family} takes {self.family.needs}", "correct the data, or use another family")  # fmt: skip
        if self.family.is_discrete:
            checks.check_counts({name: y} | ({} if trials is None else {str(self.options.trials): trials}), start)
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
        options, y, trials = self.options, self.formula.outcome.evaluate(rows), self._trials(rows)
        made = {"outcome": outcome_of(y, self.family)}
        if len(mean):
            made["design"] = (evaluate_columns(self.columns, rows, num_rows) - mean) / sd
        if (offset := self._offset(rows)) is not None:
            made["offset"] = offset
        if options.weights is not None:
            made["weights"] = np.asarray(rows[options.weights], float)
        if trials is not None:
            made["trials"] = checks.whole_trials(options.trials, trials)
        if (constant := self.family.constant(y, trials)) is not None:
            made["constant"] = constant
        for i, (group, columns) in enumerate(zip(self.formula.groups, self.effects, strict=True)):
            if i != local:
                made[f"group_{i}"] = np.asarray(rows[group.group]).astype(np.int32)
            if columns:
                made[f"effects_{i}"] = evaluate_columns(columns, rows, num_rows)
        return made
