"""Rows of a table as a linear model reads them: outcome, standardised columns, offset, weights and group codes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.config.data_spec import FieldSpec
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Condensed, DataSpec, HostRows, Preparation, ReadBlocks
from bayesmesh.models.glm import checks, partial
from bayesmesh.models.glm.coefficients import unit_of
from bayesmesh.models.glm.condensed import Layout, condense_normal, condense_same
from bayesmesh.models.glm.curvature import NUM_ROWS, Likelihood
from bayesmesh.models.glm.design import LARGEST, Group, Source, check_numbers, levels_of
from bayesmesh.models.glm.families.base import Family, family_of, outcome_of
from bayesmesh.models.glm.fit import Working, fit, fit_levels, working_levels
from bayesmesh.models.glm.formula import KEY, Formula, parse_formula
from bayesmesh.models.glm.integrated import condense_levels, fits
from bayesmesh.models.glm.moments import Moments, moments_of
from bayesmesh.models.glm.predictor import Terms, check_contrasts, check_groups, make_terms, terms_of_parameters

ROLES = ("weights", "offset", "exposure")
"""Roles of columns, which the data may give and the options of the model may name."""


STORED_LEVELS = 10_000
"""Number of levels from which the effects of a group are stored with their rows; fewer are read and added faster from one array."""

_INFORMATION = {"logit": 0.2}
"""Link of a parameter -> about what a row says of its predictor, 1 for others; coordinates alone depend on it."""


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
    return {key: getattr(options, key) for key in (*ROLES, "trials")} | partial.columns_of(options)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
    formula = parse_formula(options.formula, list(fields))
    named = _named(options)
    for key, name in {**named, "censored": options.censored}.items():
        if name is None:
            continue
        if name in formula.outcome.names and key != "weights":
            raise ConfigError(f"key 'model.{key}': '{name}' is the outcome of the formula", "name another column")
        if name not in fields:
            takes_number = key.startswith(("truncated", "rounded"))
            remedy = "write the number without quotes" if takes_number and _is_number(name) else suggest(name, fields)
            raise ConfigError(f"key 'model.{key}': no column '{name}' in the data", remedy)
        about = spec.variables.get(name)
        if about is not None and (about.mean, about.scale) != (0.0, 1.0):
            raise ConfigError(
                f"key 'model.{key}': '{name}' is standardised", "leave it out of the key 'data.standardise'"
            )
        if about is not None and about.kind == "category" and key != "censored":
            raise ConfigError(f"key 'model.{key}': '{name}' is a category", "use a column of numbers")
    for key in ("interval_end", "rounded", "truncated"):
        if getattr(options, key) is not None and not formula.outcome.is_plain:
            problem = (
                f"key 'model.{key}': it has the unit of a column, and '{formula.outcome.text}' is a transform of one"
            )
            remedy = "put the transformed outcome into the table, in the unit of this key; or, for a log, use family log_normal for the column itself"
            raise ConfigError(problem, remedy)
    partial.check_options(options, family, spec.variables)
    if named["exposure"] is not None and family.link != "log":
        raise ConfigError(
            f"key 'model.exposure': the predictor of the family {family.name} is not a log of a mean",
            "use it with a family of a log link, such as poisson",
        )
    if family.has_trials != (options.trials is not None):
        problem, remedy = (
            ("needs the number of trials", "name its column, or use bernoulli for outcomes of 0 and 1")
            if options.trials is None
            else ("has no trials", "leave it out, or use binomial or beta_binomial")
        )
        raise ConfigError(f"key 'model.trials': the family {family.name} {problem}", remedy)
    source = Source(fields, spec.variables, spec.labels, options.contrasts)
    check_numbers(source.variables, formula.outcome)
    if family.takes_levels:
        checks.check_kind(formula.outcome.text, options.family, spec.variables)
    main = make_terms(source, formula, is_ordered=family.is_ordered)
    checks.check_terms(formula, main.columns, family)
    others = terms_of_parameters(options.parameters, family, source, formula.outcome.text)
    formulas = [each.formula for each in (main, *others.values())]
    check_contrasts(source, formulas)
    check_groups("centred", options.centred if isinstance(options.centred, tuple) else (), formulas)
    for key in ("local_group", "integrated_group"):
        if (group := getattr(options, key)) not in ("auto", "none"):
            check_groups(key, (group,), [formula])
    return Reader(options, family, source, main, others)


def prepare_table(options: Any, spec: DataSpec, read_blocks: ReadBlocks) -> Preparation:
    """Return how rows become fields, with the moments of columns and outcomes; see `Glm.prepare`."""
    reader = make_reader(options, spec, spec.fields)
    constants = reader.describe(read_blocks)
    local = reader.choose_local(constants)
    constants["local_group"] = -1 if local is None else local
    if (integrated := reader.choose_integrated(constants, read_blocks)) is not None:
        constants["integrated_group"] = integrated
    moments = [terms.moments(constants) for terms in reader.terms]

    def of_rows(rows: HostRows, num_rows: int) -> dict[str, np.ndarray]:
        return reader.fields(rows, num_rows, moments, local)

    def read_fields() -> Iterator[HostRows]:
        for rows in read_blocks():
            yield reader.fields(rows, len(next(iter(rows.values()))), moments, None)

    arrays = reader.fit(constants, read_fields, spec.num_rows)
    condense = functools.partial(reader.condense, constants, read_fields, arrays, spec.num_rows)
    if local is None:
        return Preparation(of_rows, constants, arrays=arrays, condense=condense)
    group, num_levels = reader.formula.groups[local].group, int(constants[f"levels_of_group_{local}"])
    return Preparation(of_rows, constants, group, num_levels, arrays, condense)


class Reader(NamedTuple):
    """The formulas of a model with the columns of a source that they read; computes fields from rows.

    Attributes:
        options: options of the model, completed by the columns to which the data give a role.
        family: family of the outcome.
        source: columns of the source.
        main: terms of the main predictor.
        others: parameter -> terms of its predictor.
    """

    options: Any
    family: Family
    source: Source
    main: Terms
    others: Mapping[str, Terms]

    @property
    def formula(self) -> Formula:
        """The formula of the outcome."""
        return self.main.formula

    @property
    def terms(self) -> tuple[Terms, ...]:
        """The terms of all predictors, the main one first."""
        return (self.main, *self.others.values())

    def groups(self, constants: Mapping[str, float | int]) -> tuple[Group, ...]:
        """Return the group effects of the main predictor."""
        return self.main.groups(constants, self.options.centred, int(constants["local_group"]))

    def choose_local(self, constants: Mapping[str, float | int]) -> int | None:
        """Return the number of the group whose effects are stored with their rows."""
        groups, wanted = self.formula.groups, self.options.local_group
        sizes = [int(constants[f"levels_of_group_{i}"]) for i in range(len(groups))]
        if wanted == "none" or not sizes:
            return None
        if wanted == "auto":
            largest = int(np.argmax(sizes))
            return largest if sizes[largest] >= STORED_LEVELS else None
        return next(i for i, each in enumerate(groups) if each.group == wanted)

    def fit(
        self, constants: Mapping[str, float | int], read_fields: ReadBlocks, num_rows: int
    ) -> Mapping[str, np.ndarray]:
        """Return the arrays of `fit.fit` or, for families of levels, of `fit.fit_levels`.

        Args:
            constants: constants of the prepared data.
            read_fields: returns an iterator over prepared rows in blocks, with the codes of all groups.
            num_rows: number of rows.
        """
        of_parameters = {
            name: gram
            for parameter, terms in self.others.items()
            for name, gram in terms.information(
                constants, read_fields, _INFORMATION.get(self.family.parameters[parameter].link, 1.0)
            )
        }
        return {**self._fit_main(constants, read_fields, num_rows), **of_parameters}

    def _likelihood(self, num_rows: int) -> Likelihood | None:
        """Return what finds the parameters from many rows; with few, chains find them as fast."""
        options, family = self.options, self.family
        is_partial = partial.is_partial(options)
        fixed = {name: each for name, each in options.parameters.items() if isinstance(each, float)}
        links = {name: (name, each.link) for name, each in family.parameters.items() if name not in fixed}
        links |= {name: (f"{name}_intercept", links[name][1]) for name in self.others}
        if num_rows < NUM_ROWS or family.takes_levels or options.known_error:
            return None
        if not is_partial and (not links or (family.is_summed and not self.others)):
            return None
        return Likelihood(family, links, fixed, is_one_sided=partial.is_one_sided(options), is_partial=is_partial)

    def _fit_main(
        self, constants: Mapping[str, float | int], read_fields: ReadBlocks, num_rows: int
    ) -> Mapping[str, np.ndarray]:
        family, scale = self.family, float(constants["outcome_scale"])
        has_intercept = self.main.has_intercept
        working: Working = family.working
        if family.is_ordered:
            working = working_levels(family, int(constants["outcome_levels"]), read_fields)
        elif family.takes_levels:
            return fit_levels(family, int(constants["outcome_levels"]), read_fields, len(self.main.labels))
        mean = float(constants["outcome_mean"] - constants["offset_mean"])
        has_digits = has_intercept or 1 - (mean / scale) ** 2 > checks.LEAST_SPREAD

        def look(group: int, gram: np.ndarray, levels: np.ndarray, num_rows: float) -> None:
            if family.is_in_unit and has_digits and (surplus := checks.surplus_rows(gram, levels, num_rows)):
                number = group if self.formula.groups else None
                checks.warn_of_exact_fit(self.formula, self.options.priors, number, surplus)

        return fit(
            family, working, self.groups(constants), read_fields, len(self.main.labels), scale if family.is_in_unit else 1.0,
            mean if family.is_in_unit and has_intercept else 0.0, has_intercept=has_intercept, num_rows=num_rows,
            likelihood=self._likelihood(num_rows), look=look,
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
        has_intercept, num_columns = self.formula.has_intercept, len(self.main.labels)
        if "integrated_group" in constants:
            chosen = groups[int(constants["integrated_group"])]
            layout = Layout(has_intercept, num_columns, tuple(group for group in groups if group != chosen))
            return condense_levels(layout, chosen, read_fields, arrays["location"])
        if self.has_normal_units(groups):
            # A kernel may draw the effects of each group, from the rows.
            return None
        if self._has_sums:
            return condense_normal(
                Layout(has_intercept, num_columns, groups), read_fields, num_rows, arrays["location"]
            )
        local = next((group for group in groups if group.is_local), None)
        return condense_same(
            read_fields, None if local is None else local.number, 0 if local is None else local.num_levels
        )

    @property
    def _has_sums(self) -> bool:
        """Whether the likelihood of many rows follows from sums of products of their columns."""
        return self.family.is_summed and not (self.options.parameters or partial.is_partial(self.options))

    def has_normal_units(self, groups: tuple[Group, ...]) -> bool:
        """Return whether the effects of several groups of a normal outcome are independent, and are their own coordinates."""
        are_units = all(g.is_centred is True and not g.is_correlated and g.num_levels > 1 for g in groups)
        of_line = {"intercept", "coefficients", *(columns.name for columns in self.main.columns)}
        texts = [text for name, text in self.options.priors.items() if name in of_line]
        has_normal_line = all(text.partition("(")[0].strip() == "normal" for text in texts)
        return self._has_sums and len(groups) > 1 and are_units and has_normal_line

    def choose_integrated(self, constants: Mapping[str, float | int], read_blocks: ReadBlocks) -> int | None:
        """Return the number of the group whose effects are integrated out, if the outcome is normal and the rows allow it.

        Raises:
            ConfigError: the configuration names a group for which it is impossible.
        """
        groups, wanted, centred = self.formula.groups, self.options.integrated_group, self.options.centred
        if wanted == "none" or not groups:
            return None
        sizes = [int(constants[f"levels_of_group_{i}"]) for i in range(len(groups))]
        is_named = wanted != "auto"
        chosen = next((i for i, each in enumerate(groups) if each.group == wanted), int(np.argmax(sizes)))
        name, local = groups[chosen].group, int(constants["local_group"])
        problem = ""
        if not self._has_sums:
            problem = "the outcome is not normal, is known in part, or a parameter has a value in 'model.parameters'"
        elif centred is not None and not (isinstance(centred, tuple) and name not in centred):
            problem = "the key 'model.centred' says in which coordinates they are sampled"
        elif local not in (-1, chosen):
            problem = f"those of '{groups[local].group}' are stored with the rows"
        elif (across := self._find_across(chosen, sizes[chosen], read_blocks)) is not None:
            problem = f"a level of '{name}' has rows in several levels of '{across}'"
        else:
            widths = [len(self.main.labels), *(sum(len(c.labels) for c in part) for part in self.main.effects)]
            if not fits(sizes[chosen], widths[1 + chosen] + 1, sum(widths) + 2, len(groups)):
                problem = "their sums of products need too much memory"
        if not problem:
            return chosen
        if is_named:
            raise ConfigError(
                f"key 'model.integrated_group': the effects of '{name}' cannot be integrated out: {problem}",
                "remove the key, and they are sampled",
            )
        return None

    def _find_across(self, chosen: int, num_levels: int, read_blocks: ReadBlocks) -> str | None:
        """Return another grouping column of which the rows of some level of a group have several levels."""
        names = [term.group for term in self.formula.groups]
        seen = {name: np.full(num_levels, -1) for i, name in enumerate(names) if i != chosen}
        for rows in read_blocks() if seen else ():
            at = np.asarray(rows[names[chosen]])
            for name, own in seen.items():
                codes = np.asarray(rows[name])
                own[at] = np.where(own[at] < 0, codes, own[at])
                if (own[at] != codes).any():
                    return name
        return None

    def describe(self, read_blocks: ReadBlocks) -> dict[str, float | int]:
        """Return moments and numbers of levels, after checking every row.

        Raises:
            ConfigError: a value cannot be an outcome, a count or a group code, or is not finite; names the row.
        """
        groups = {term.group: terms.key for terms in reversed(self.terms) for term in terms.formula.groups}
        coded = {"": self.formula.outcome.text} | {name: name for name in groups}
        # Codes that occur only in held-out rows count too.
        most = {key: self.source.fields[name].num_codes for key, name in coded.items() if name in self.source.fields}
        names = [
            (terms.key, f"column {terms.labels[i]}" if i < len(terms.labels) else "an effect of a group")
            for terms in self.terms
            for i in range(terms.width)
        ]
        seen = np.zeros(0)
        # What no row has had so far: an end of what is known of its outcome, and a weight.
        missing = {"above", "up_to", "weights"}
        kinds = dict.fromkeys(partial.KINDS, 0) if self.options.censored else {}
        is_doubled = True

        def blocks() -> Iterator[np.ndarray]:
            nonlocal seen, is_doubled
            start = 0
            for rows in read_blocks():
                num_rows = len(next(iter(rows.values())))
                outcome = self._outcome(rows, start)
                parts = [part for terms in self.terms for part in terms.evaluate(rows, num_rows)]
                known = self._partial(rows, outcome, start)
                checks.check_signs(_named(self.options), rows, start)
                missing.difference_update(
                    end for end in ("above", "up_to") if np.isfinite(known.get(end, outcome)).any()
                )
                if self.options.weights is None or np.any(rows[self.options.weights]):
                    missing.discard("weights")
                if kinds:
                    codes = partial.kinds_of(self.options, self.source.variables, rows, None)
                    for kind, code in partial.KINDS.items():
                        kinds[kind] += int(np.sum(codes == code))
                offsets = self._offsets(rows)
                is_doubled = is_doubled and len(offsets) > 1 and np.allclose(offsets[0], offsets[-1])
                offset = sum(offsets, start=np.zeros(num_rows))
                trials = self._trials(rows)
                trials = np.ones(num_rows) if trials is None else trials
                block = np.concatenate([*parts, outcome[:, None], offset[:, None], trials[:, None]], axis=1)
                self._check_finite(block, names, start)
                for name, key in groups.items():
                    codes = checks.group_codes(name, np.asarray(rows[name]), start, key)
                    most[name] = max(most.get(name, 0), int(codes.max(initial=0)) + 1)
                most[""] = max(most.get("", 0), int(outcome.max(initial=0)) + 1)
                seen = np.union1d(seen, outcome) if self.family.takes_levels else seen
                start += num_rows
                yield block

        found = moments_of(blocks())
        checks.check_missing(self.options, missing if found.num_rows else set())
        if is_doubled and found.num_rows:
            checks.warn_of_doubled_offset(self.options)
        counts = {f"num_{kind}": number for kind, number in kinds.items()}
        return self._constants(found, most, read_blocks) | self._levels(seen, most[""]) | counts

    def _constants(self, found: Moments, most: Mapping[str, int], read_blocks: ReadBlocks) -> dict[str, float | int]:
        constants: dict[str, float | int] = {}
        first = 0
        for terms in self.terms:
            constants |= terms.constants_of_columns(found, first, read_blocks)
            first += terms.width
        mean, offset, trials = found.mean[-3:].tolist()
        checks.check_trials(self.options.trials, trials)
        # Without an intercept, coefficients, effects or sigma also have to account for the mean.
        scale = float(np.hypot(0.0 if self.formula.has_intercept else mean - offset, found.sd[-3])) or 1.0
        constants |= {"outcome_mean": mean, "outcome_scale": scale, "offset_mean": offset, "trials_mean": trials}
        for terms in self.terms:
            constants |= terms.constants_of_groups(self.source, most)
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

    def _partial(self, rows: HostRows, y: np.ndarray, start: int | None) -> dict[str, np.ndarray]:
        """Return the fields of what is known of the outcomes; see `partial.fields_of`."""
        unit = unit_of(self.formula.outcome, self.source.variables) if self.family.is_in_unit else (0.0, 1.0)
        return partial.fields_of(self.options, self.family, self.source, unit, y, rows, start)

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
        if levels and not self.family.takes_levels and not (self.family.takes_two_levels and len(levels) == 2):
            raise ConfigError(f"{KEY}: '{name}' is a category of {len(levels)} level{'s' * (len(levels) > 1)}; family {self.options.family} takes {self.family.needs}", "use another family: " + ("bernoulli, " if len(levels) == 2 else "") + "categorical or ordinal")  # fmt: skip
        possible = self.family.fits(y, trials)
        if not possible.all():
            row = int(np.argmin(possible))
            of = "" if trials is None else f" of {trials[row]:g} trials"
            remedy = f"correct the data, or use another family{self.family.instead and ': '}{self.family.instead}"
            if y[row] == 0 and self.family.has_cdf:
                remedy = partial.without_zero(self.options, self.source.variables, rows, row) or remedy
            raise ConfigError(f"{KEY}: training row {start + row + 1}: '{name}' is {y[row]:g}{of}; family {self.options.family} takes {self.family.needs}", remedy)  # fmt: skip
        if self.family.is_discrete:
            checks.check_counts({name: y} | ({} if trials is None else {str(self.options.trials): trials}), start)
        return y

    def _check_finite(self, block: np.ndarray, names: list[tuple[str, str]], start: int) -> None:
        for row, column in np.argwhere(~(np.abs(block) <= LARGEST))[:1]:
            key, what = names[column] if column < len(names) else (KEY, "the outcome or the offset")
            value = block[row, column]
            remedy = f"use another unit, or a transform, of which all numbers are at most {LARGEST:g}"
            if np.isnan(value):
                remedy = "use a transform that is defined for all rows, or leave out the rows for which it is not"
            elif value == -np.inf:
                remedy = "use a transform that is finite for all rows, such as log1p instead of log"
            raise ConfigError(f"{key}: training row {start + row + 1}: {what} is {value:g}", remedy)

    def _offsets(self, rows: HostRows) -> list[np.ndarray]:
        """Return the offset, and the log of the exposure, of each row, of those that are given, float64."""
        options = self.options
        parts = [] if options.offset is None else [np.asarray(rows[options.offset], float)]
        return parts + ([] if options.exposure is None else [np.log(np.asarray(rows[options.exposure], float))])

    def fields(
        self, rows: HostRows, num_rows: int, moments: Sequence[tuple[np.ndarray, np.ndarray]], local: int | None
    ) -> dict[str, np.ndarray]:
        """Return the prepared fields of some rows."""
        options, y, trials = self.options, self.formula.outcome.evaluate(rows), self._trials(rows)
        made = {"outcome": outcome_of(y, self.family)}
        for terms, (mean, sd) in zip(self.terms, moments, strict=True):
            made |= terms.design(rows, num_rows, mean, sd)
        if offsets := self._offsets(rows):
            made["offset"] = sum(offsets[1:], start=offsets[0])
        if options.weights is not None:
            made["weights"] = np.asarray(rows[options.weights], float)
        made |= self._partial(rows, np.asarray(y, float), None)
        if trials is not None:
            made["trials"] = checks.whole_trials(options.trials, trials)
        if (constant := self.family.constant(y, trials)) is not None:
            made["constant"] = constant
        for terms in self.terms:
            made |= terms.of_groups(rows, num_rows, None if terms.prefix else local)
        return made
