"""Reductions of all rows before sampling: the quick fit that determines the coordinates, and rows that stand for many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.models.base import Condensed, HostRows
from bayesmesh.models.glm.condensed import condense_normal, condense_same, make_layout
from bayesmesh.models.glm.design import Columns
from bayesmesh.models.glm.exact_fit import LEAST_SPREAD, surplus_rows, warn_of_exact_fit
from bayesmesh.models.glm.families import Family
from bayesmesh.models.glm.fit import Term, fit, fit_levels
from bayesmesh.models.glm.formula import Formula
from bayesmesh.models.glm.groups import Group

MANY_LEVELS = 1000
"""Number of levels from which the effects of a group are stored with their rows."""

ReadFields = Callable[[], Iterator[HostRows]]
"""Function that returns an iterator over prepared rows in blocks, with the codes of all groups."""


class Reduction(NamedTuple):
    """The parts of a model that the reduction of its rows needs.

    Attributes:
        options: options of the model.
        formula: formula of the model.
        columns: population-level columns, by term.
        effects: for each group, its columns by term.
        family: family of the outcome.
        constants: constants of the prepared data.
        local: number of the group whose effects are stored with their rows.
    """

    options: Any
    formula: Formula
    columns: tuple[Columns, ...]
    effects: tuple[tuple[Columns, ...], ...]
    family: Family
    constants: Mapping[str, float | int]
    local: int | None

    @property
    def _num_columns(self) -> int:
        return sum(len(c.labels) for c in self.columns)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(int(self.constants[f"levels_of_group_{i}"]) for i in range(len(self.formula.groups)))

    def fit(self, read_fields: ReadFields) -> Mapping[str, np.ndarray]:
        """Return the arrays of `fit.fit` or, for families of levels, of `fit.fit_levels`."""
        if self.family.takes_levels:
            return fit_levels(self.family, int(self.constants["outcome_levels"]), read_fields, self._num_columns)
        terms = [
            Term(i, self._sizes[i], (() in g.terms) + sum(len(c.labels) for c in part), () in g.terms)
            for i, (g, part) in enumerate(zip(self.formula.groups, self.effects, strict=True))
        ]
        unit = float(self.constants["outcome_scale"]) if self.family.is_in_unit else 1.0
        has_intercept, center = self.formula.has_intercept, 0.0
        if self.family.is_in_unit and has_intercept:
            center = float(self.constants["outcome_mean"] - self.constants["offset_mean"])
        return fit(
            self.family, terms, read_fields, self._num_columns, unit, center,
            has_intercept=has_intercept, look=self._look_for_exact_fit,
        )  # fmt: skip

    def _look_for_exact_fit(self, group: int, gram: np.ndarray, levels: np.ndarray, num_rows: float) -> None:
        mean = 0.0 if self.formula.has_intercept else self.constants["outcome_mean"] - self.constants["offset_mean"]
        has_digits = 1 - (mean / self.constants["outcome_scale"]) ** 2 > LEAST_SPREAD
        if self.family.is_in_unit and has_digits and (surplus := surplus_rows(gram, levels, num_rows)):
            warn_of_exact_fit(self.formula, self.options.priors, group if self.formula.groups else None, surplus)

    def condense(self, read_fields: ReadFields, arrays: Mapping[str, np.ndarray], num_rows: int) -> Condensed | None:
        """Return rows that stand for many, see `condensed`; None if there is no gain."""
        sizes, local = self._sizes, self.local
        if self.options.family != "normal":
            return condense_same(read_fields, local, 0 if local is None else sizes[local])
        groups = tuple(
            Group.make(i, g, part, self.constants, self.options)
            for i, (g, part) in enumerate(zip(self.formula.groups, self.effects, strict=True))
        )
        has_intercept = self.formula.has_intercept
        layout = make_layout(groups, self._num_columns, has_intercept=has_intercept)
        return condense_normal(
            layout, sizes, read_fields, num_rows, arrays["location"], local, has_intercept=has_intercept
        )


def choose_local(options: Any, formula: Formula, constants: Mapping[str, float | int]) -> int | None:
    """Return the number of the group whose effects are stored with their rows."""
    sizes = {i: int(constants[f"levels_of_group_{i}"]) for i in range(len(formula.groups))}
    if options.local_group == "none" or not sizes:
        return None
    if options.local_group == "auto":
        largest = max(sizes, key=lambda i: sizes[i])
        return largest if sizes[largest] >= MANY_LEVELS else None
    return next(i for i, g in enumerate(formula.groups) if g.group == options.local_group)
