"""One linear predictor: the columns that its formula reads from a table, and the latents that multiply them.

The main predictor is that of the outcome. A parameter of the family, such as ``sigma``, may have one as well; its latents,
summaries and prepared fields then have the names of the main one's after ``sigma_``. A later kind of term, such as a spline,
adds its columns in `Terms` and its contribution to `Predictor.of_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import DataSpec, HostRows, Latents, ReadBlocks, Rows
from bayesmesh.models.glm import checks
from bayesmesh.models.glm.coefficients import NAME, Original, original_of
from bayesmesh.models.glm.design import (
    MOST_COLUMNS,
    Columns,
    Group,
    Source,
    block_of,
    evaluate_columns,
    latent_name,
    levels_of,
    make_columns,
)
from bayesmesh.models.glm.families.base import Family
from bayesmesh.models.glm.fit import add_levels
from bayesmesh.models.glm.formula import KEY, Formula, parse_formula
from bayesmesh.models.glm.moments import Moments


class Terms(NamedTuple):
    """The terms of a formula with the columns of a source that they read.

    Attributes:
        prefix: first part of the names of latents, summaries and fields; empty for the main predictor.
        formula: the formula.
        has_intercept: whether there is an intercept: an ordinal outcome has cutpoints instead.
        has_constant: whether there is an intercept, or cutpoints in its place.
        columns: population-level columns, by term.
        effects: for each group, the columns that its effects multiply, by term, without the intercept.
    """

    prefix: str
    formula: Formula
    has_intercept: bool
    has_constant: bool
    columns: tuple[Columns, ...]
    effects: tuple[tuple[Columns, ...], ...]

    @property
    def key(self) -> str:
        """The key of the formula, as messages name it."""
        return f"key 'model.parameters.{self.prefix[:-1]}'" if self.prefix else KEY

    @property
    def labels(self) -> list[str]:
        """One label for each population-level column."""
        return [label for each in self.columns for label in each.labels]

    @property
    def _widths(self) -> list[int]:
        return [sum(len(c.labels) for c in part) for part in self.effects]

    @property
    def width(self) -> int:
        """Number of columns that `evaluate` returns."""
        return len(self.labels) + sum(self._widths)

    def evaluate(self, rows: HostRows, num_rows: int) -> list[np.ndarray]:
        """Return the population-level columns, and those of each group, (row, column) float64 each."""
        return [evaluate_columns(part, rows, num_rows) for part in (self.columns, *self.effects)]

    def constants_of_columns(self, found: Moments, first: int, read_blocks: ReadBlocks) -> dict[str, float | int]:
        """Return means and standard deviations of the columns, and sizes of the effects, after checking them.

        Args:
            found: moments of the columns of all predictors.
            first: position of the first column of this one.
            read_blocks: returns an iterator over all training rows.

        Raises:
            ConfigError: a column is constant.
        """
        constants: dict[str, float | int] = {}
        labels, all_mean, all_sd = self.labels, found.mean[first:], found.sd[first:]
        constant = [i for i in range(len(labels)) if not all_sd[i] > 1e-12 * abs(all_mean[i])]
        constant = [i for i in constant if self.has_constant or not all_mean[i]]
        unused = checks.find_unused(self.columns, constant, read_blocks)
        for i, label in enumerate(labels):
            if i in constant and i not in unused:
                raise checks.without_spread(f"'{label}'", all_mean[i], "leave it out", self.key)
            constants[f"{self.prefix}mean_of_column_{i}"] = float(all_mean[i]) if self.has_constant else 0.0
            constants[f"{self.prefix}sd_of_column_{i}"] = (
                unused[i].size if i in unused else float(all_sd[i]) or float(abs(all_mean[i]))
            )
        constants |= {f"{self.prefix}is_unused_{i}": 1 for i in unused}
        checks.warn_of_unused(unused.values(), self.key)
        slopes = [
            (f"'{label}' by '{term.group}'", () in term.terms and columns.is_of_numbers)
            for term, part in zip(self.formula.groups, self.effects, strict=True)
            for columns in part
            for label in columns.labels
        ]
        same = []
        for i, (name, beside_intercept) in enumerate(slopes):
            mean, sd = all_mean[len(labels) + i], all_sd[len(labels) + i]
            if beside_intercept and not sd > 1e-12 * abs(mean):
                same.append(name)
            constants[f"{self.prefix}size_of_effect_{i}"] = float(np.hypot(mean, sd)) or 1.0
        checks.warn_of_constant_slopes(same, self.key)
        return constants

    def constants_of_groups(self, source: Source, most: Mapping[str, int]) -> dict[str, float | int]:
        """Return the numbers of levels of the groups, and where the sizes of their effects begin.

        Args:
            source: columns of the source.
            most: column of groups -> number of codes.
        """
        constants: dict[str, float | int] = {}
        for i, term in enumerate(self.formula.groups):
            constants[f"{self.prefix}first_effect_of_group_{i}"] = sum(self._widths[:i])
            about = source.variables.get(term.group)
            number = len(about.levels) if about and about.levels else most[term.group]
            constants[f"{self.prefix}levels_of_group_{i}"] = number
        return constants

    def moments(self, constants: Mapping[str, float | int]) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations of the columns, from the constants of the prepared data."""
        mean, sd = (
            np.array([constants[f"{self.prefix}{what}_of_column_{i}"] for i in range(len(self.labels))])
            for what in ("mean", "sd")
        )
        return mean, sd

    def groups(
        self, constants: Mapping[str, float | int], centred: bool | tuple[str, ...] | None, local: int | None
    ) -> tuple[Group, ...]:
        """Return the group effects, from the constants of the prepared data.

        Args:
            constants: constants of the prepared data.
            centred: see the options of the model.
            local: number of the group that is stored with its rows.
        """
        found = []
        for number, (term, columns) in enumerate(zip(self.formula.groups, self.effects, strict=True)):
            has_intercept = () in term.terms
            labels = [label for each in columns for label in each.labels]
            first = int(constants[f"{self.prefix}first_effect_of_group_{number}"])
            sizes = [float(constants[f"{self.prefix}size_of_effect_{first + i}"]) for i in range(len(labels))]
            if has_intercept:
                labels, sizes = ["intercept", *labels], [1.0, *sizes]
            found.append(
                Group(
                    number, latent_name(term.group), has_intercept, tuple(labels), tuple(sizes),
                    int(constants[f"{self.prefix}levels_of_group_{number}"]), term.is_correlated and len(sizes) > 1,
                    term.group in centred if isinstance(centred, tuple) else centred, local == number, self.prefix,
                )
            )  # fmt: skip
        return tuple(found)

    def information(
        self, constants: Mapping[str, float | int], read_fields: ReadBlocks, of_row: float
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield, for each group, the field of what its rows say about the effects of each level, (level, effect, effect).

        Args:
            constants: constants of the prepared data.
            read_fields: returns an iterator over prepared rows in blocks.
            of_row: information of a row about the predictor.
        """
        for group in self.groups(constants, None, None):
            gram = np.zeros((group.num_levels, group.num_effects, group.num_effects))
            for rows in read_fields():
                effects = group.columns_of_effects(rows)
                add_levels(gram, rows[f"{self.prefix}group_{group.number}"], of_row * effects, effects)
            yield f"{self.prefix}gram_{group.number}", gram

    def design(self, rows: HostRows, num_rows: int, mean: np.ndarray, sd: np.ndarray) -> dict[str, np.ndarray]:
        """Return the field of standardised columns; nothing without columns."""
        if not len(mean):
            return {}
        return {f"{self.prefix}design": (evaluate_columns(self.columns, rows, num_rows) - mean) / sd}

    def of_groups(self, rows: HostRows, num_rows: int, local: int | None) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the fields of the groups: codes, except those of the group `local`, and columns of effects."""
        for i, (group, columns) in enumerate(zip(self.formula.groups, self.effects, strict=True)):
            if i != local:
                yield f"{self.prefix}group_{i}", np.asarray(rows[group.group]).astype(np.int32)
            if columns:
                yield f"{self.prefix}effects_{i}", evaluate_columns(columns, rows, num_rows)

    def bind(
        self, spec: DataSpec, priors: Mapping[str, str], centred: bool | tuple[str, ...] | None, output_shape: tuple[int, ...],
        outcome_unit: tuple[float, float],
    ) -> Predictor:  # fmt: skip
        """Return the predictor for prepared data.

        Args:
            spec: description of the prepared data.
            priors: the priors of this predictor that were given.
            centred: see the options of the model.
            output_shape: shape of one row's predictor.
            outcome_unit: shift and scale from the unit of the predictor to that of the table.
        """
        mean, sd = self.moments(spec.constants)
        local = None if self.prefix else int(spec.constants["local_group"])
        blocks: dict[str, list[int]] = {}
        for i, name in enumerate(each.name for each in self.columns for _ in each.labels):
            blocks.setdefault(self.prefix + block_of(priors, name), []).append(i)
        return Predictor(
            self.prefix, self.formula, self.has_intercept, self.columns, mean, sd, self.groups(spec.constants, centred, local),
            output_shape, {name: tuple(indices) for name, indices in blocks.items()},
            original_of(self.columns, spec, *outcome_unit),
        )  # fmt: skip


def make_terms(source: Source, formula: Formula, prefix: str = "", *, is_ordered: bool = False) -> Terms:
    """Return the terms of a formula with their columns.

    Args:
        source: columns of the source.
        formula: the formula.
        prefix: first part of all names; see `Terms`.
        is_ordered: whether cutpoints take the place of the intercept.

    Raises:
        ConfigError: a term does not fit the columns of the source, or there are too many columns.
    """
    has_constant = formula.has_intercept or is_ordered
    columns = make_columns(source, formula.terms, has_intercept=has_constant)
    if (number := sum(len(each.labels) for each in columns)) > MOST_COLUMNS:
        largest = max(columns, key=lambda each: len(each.labels))
        raise ConfigError(f"{KEY}: {number:,} columns, of which '{largest.name}' has {len(largest.labels):,}", f"use effects of groups for many levels: (1 | {largest.name})")  # fmt: skip
    effects = (
        make_columns(source, term.terms[() in term.terms :], has_intercept=() in term.terms) for term in formula.groups
    )
    return Terms(
        prefix,
        formula,
        formula.has_intercept and not is_ordered,
        has_constant,
        tuple(columns),
        tuple(map(tuple, effects)),
    )


def terms_of_parameters(settings: Mapping[str, Any], family: Family, source: Source, outcome: str) -> dict[str, Terms]:
    """Return parameter -> the terms of its predictor, in the order of the family.

    Args:
        settings: parameter -> its settings, or a number to which it is set.
        family: family of the outcome.
        source: columns of the source.
        outcome: left side of the main formula.

    Raises:
        ConfigError: the family has no such parameter, a parameter no such link, or a formula does not fit the columns.
    """
    for name in settings:
        if name not in family.parameters:
            raise ConfigError(
                f"key 'model.parameters': the family {family.name} has no parameter '{name}'",
                suggest(name, family.parameters.keys() - {"baseline"}),
            )
    if "baseline" in settings:
        raise ConfigError(
            "key 'model.parameters.baseline': the probabilities of the levels have no predictor",
            "write all terms into 'model.formula'",
        )
    found = {}
    for name in family.parameters:
        if name not in settings:
            continue
        value, key = settings[name], f"key 'model.parameters.{name}'"
        if isinstance(value, float):
            _check_number(name, value, family.parameters[name].link, key)
            continue
        if value.link not in (None, link := family.parameters[name].link):
            raise ConfigError(f"key 'model.parameters.{name}.link': {name} has no link '{value.link}'", f"use {link}, or leave out the key")  # fmt: skip
        text = value.formula
        left, tilde, right = text.partition("~")
        if left.strip() or not tilde:
            remedy = f'write its right side alone, such as\n    model:\n      parameters:\n        {name}: "~ {(right or left).strip()}"'
            raise ConfigError(f"{key}: '{text:.80}' does not begin with ~", remedy)
        if "offset(" in text:
            raise ConfigError(f"{key}: '{text:.80}' has an offset", "leave it out: an offset belongs to the outcome, in the key 'model.offset'")  # fmt: skip
        try:
            found[name] = make_terms(source, parse_formula(f"{outcome} {text}", list(source.fields)), f"{name}_")
        except ConfigError as error:
            raise ConfigError(error.message.replace(KEY, key), error.remedy) from error
        if not (found[name].has_constant or found[name].columns or found[name].formula.groups):
            raise ConfigError(f"{key}: '{text:.80}' has no terms", f'write a number, or "~ 1" to estimate one {name}')
    return found


def _check_number(name: str, value: float, link: str, key: str) -> None:
    """Reject a number to which a parameter cannot be set; whether sigma may be 0 is checked with known errors."""
    if link == "logit" and not 0 < value < 1:
        raise ConfigError(f"{key}: {value:g} is not between 0 and 1", "write a number between 0 and 1")
    if link == "log" and (value < 0 or (value == 0 and name != "sigma")):
        raise ConfigError(f"{key}: {value:g} is not positive", "write a number greater than 0")


class Predictor(NamedTuple):
    """A linear predictor of prepared rows.

    Attributes:
        prefix: first part of the names of latents, summaries and fields; empty for the main predictor.
        formula: its formula.
        has_intercept: whether there is an intercept.
        columns: population-level columns, by term.
        mean, sd: means and standard deviations of the columns over the training rows; means are 0 without an intercept.
        groups: group effects.
        output_shape: shape of one row's predictor.
        blocks: latent -> indices of the columns whose coefficients it holds.
        original: coefficients in the units of the table, where those of the columns differ.
    """

    prefix: str
    formula: Formula
    has_intercept: bool
    columns: tuple[Columns, ...]
    mean: np.ndarray
    sd: np.ndarray
    groups: tuple[Group, ...]
    output_shape: tuple[int, ...]
    blocks: Mapping[str, tuple[int, ...]]
    original: Original | None

    @property
    def intercept(self) -> str:
        """Latent with the intercept where all columns have their means."""
        return f"{self.prefix}intercept"

    def b(self, columns: Columns) -> str:
        """Return the summary with the coefficients of a term."""
        return f"{self.prefix}b_{latent_name(columns.name)}"

    @property
    def labels(self) -> list[str]:
        """One label for each population-level column."""
        return [label for each in self.columns for label in each.labels]

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
        parts = [latents[self.intercept][None]] if self.has_intercept else []
        parts += [self.coefficients(latents) * jnp.asarray(self.sd, dtype)] if self.columns else []
        return jnp.concatenate([jnp.zeros(0, dtype), *parts])

    def over_outputs(self, values: np.ndarray, dtype: Any) -> Float[Array, "column ..."]:
        """Return one number per column, with axes of length 1 for the outputs."""
        return jnp.asarray(values, dtype).reshape(-1, *(1 for _ in self.output_shape))

    def of_rows(self, latents: Latents, rows: Rows, offset: Array | None = None) -> Float[Array, "rows ..."]:
        """Return the predictor of each row, (rows, *output_shape), to which `offset`, (rows,), is added."""
        like = next(iter(latents.values()))
        shape = (len(rows["outcome"]), *self.output_shape)
        eta = jnp.zeros(shape, like.dtype)
        if self.has_intercept:
            eta = eta + jnp.broadcast_to(latents[self.intercept], shape)
        if self.columns:
            own = self.coefficients(latents) * self.over_outputs(self.sd, like.dtype)
            eta = eta + rows[f"{self.prefix}design"] @ own
        if offset is not None:
            eta = eta + offset.reshape(-1, *(1 for _ in self.output_shape))
        for group in self.groups:
            eta = eta + group.of_rows(latents, rows)
        return eta

    def at_mean(self, latents: Latents) -> Array | int:
        """Return what the columns add to the predictor at their means."""
        if not self.columns:
            return 0
        coefficients = self.coefficients(latents)
        return jnp.sum(coefficients * self.over_outputs(self.mean, coefficients.dtype), axis=0)

    def of_terms(self, latents: Latents) -> dict[str, Array]:
        """Return coefficients by term, the intercept where all columns are 0, and both in the units of the table."""
        found: dict[str, Array] = {}
        if self.columns:
            coefficients = self.coefficients(latents)
            for columns, part in zip(self.columns, self.parts.values(), strict=True):
                # A single number needs no axis.
                found[self.b(columns)] = coefficients[part.start if columns.is_single else part]
        # Not the latent's name, which stands for a different number in the same table.
        at_zero = f"{self.intercept}_at_zero"
        if self.has_intercept:
            found[at_zero] = latents[self.intercept] - self.at_mean(latents)
        if self.original is not None:
            coefficients = self.coefficients(latents) if self.columns else jnp.zeros((0, *self.output_shape))
            found[f"{self.prefix}{NAME}"] = self.original.of(coefficients, found.get(at_zero, 0.0))
        return found

    def of_groups(self, latents: Latents) -> dict[str, Array]:
        """Return standard deviations and correlations of all groups."""
        return {name: value for group in self.groups for name, value in group.summaries(latents).items()}

    def with_new_levels(self, latents: Latents, added: Mapping[str, int], key: PRNGKeyArray) -> dict[str, Array]:
        """Return the effects of groups with new levels; see `Model.with_new_levels`."""
        return {
            group.effects: group.with_new_levels(latents, number, jax.random.fold_in(key, group.number))
            for term, group in zip(self.formula.groups, self.groups, strict=True)
            if (number := added.get(term.group, 0))
        }


def check_contrasts(source: Source, formulas: list[Formula]) -> None:
    """Reject contrasts of columns that are not categories of a formula.

    Raises:
        ConfigError: names the column.
    """
    terms = [term for f in formulas for term in (*f.terms, *(own for group in f.groups for own in group.terms))]
    known = {factor.text for term in terms for factor in term if levels_of(source.variables, factor)}
    for name in source.contrasts:
        if name not in known:
            raise ConfigError(f"key 'model.contrasts': '{name}' is not a category of the formula", suggest(name, known))


def check_groups(key: str, names: tuple[str, ...], formulas: list[Formula]) -> None:
    """Reject names of groups that no formula has.

    Raises:
        ConfigError: names the option and the group.
    """
    known = {term.group for formula in formulas for term in formula.groups}
    for name in names:
        if name not in known:
            raise ConfigError(f"key 'model.{key}': '{name}' has no effects in the formula", suggest(name, known))
