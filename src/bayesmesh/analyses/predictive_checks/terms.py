"""Terms that a formula may lack: predictors, curves, interactions, slopes that differ between groups, and groups."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from bayesmesh.analyses.predictive_checks.bins import Variable

MOST_PAIRED = 8
"""Columns whose curves and interactions are tried, those of the formula first."""

MOST_CELLS = 40
"""Largest number of levels, or of combinations of levels, of an interaction."""

FEWEST_GROUPS = 5
"""Levels from which a column is proposed as a group and not as a predictor."""

_LEAST = 1e-3
"""Variance that a feature must keep besides those that a model without the term has."""


class Term(NamedTuple):
    """A term, as a formula has it, and its features.

    Attributes:
        text: such as ``I(x^2)``.
        size: number of features.
        features: first row, and the row after the last -> (row, feature).
    """

    text: str
    size: int
    features: Callable[[int, int], Float[np.ndarray, "row feature"]]


def is_named(name: str, formula: str) -> bool:
    """Return whether a formula names a column, on the right.

    >>> is_named("x", "x2 ~ log(x) + z"), is_named("x2", "x2 ~ log(x) + z"), is_named("a b", "y ~ `a b`")
    (True, False, True)
    """
    terms = formula.partition("~")[2]
    return f"`{name}`" in terms or re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", terms) is not None


def _written(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"


def _curve(text: str, formula: str) -> str:
    has_square = re.search(rf"I\({re.escape(text)} *(\^|\*\*) *2\)", formula)
    return f"I({text}^{3 if has_square else 2})"


def propose(column: Variable, formula: str) -> str:
    """Return the term to add where residuals differ between the bins of a column; empty if it is not known.

    >>> site = Variable("site", np.zeros(0, np.int16), tuple("abcdef"))
    >>> propose(site, "y ~ x"), propose(site, "y ~ (1 | site)"), propose(site._replace(name="x", at=(1.0,)), "y ~ x")
    ('(1 | site)', '', 'I(x^2)')
    """
    name, text = column.name, _written(column.name)
    if not formula or not column.is_field:
        return ""
    if is_named(name, formula):
        return _curve(text, formula) if column.at else ""
    is_group = len(column.labels) >= FEWEST_GROUPS if not column.at else column.is_whole
    return f"(1 | {text})" if is_group else text


def list_terms(columns: Sequence[Variable], formula: str) -> list[Term]:
    """Return the terms of one or two columns that the model may lack; none without a formula.

    A feature keeps only what predictors that the model may have do not explain.

    Args:
        columns: of the data.
        formula: of the model.
    """
    if not formula:
        return []
    own = sorted((each for each in columns if each.is_field), key=lambda each: not is_named(each.name, formula))
    chosen, found = own[:MOST_PAIRED], []
    for each in chosen:
        if each.scores.size:
            if not is_named(each.name, formula):
                found.append(_product(_written(each.name), (each.scores,), 0))
            found.append(_product(_curve(_written(each.name), formula), (each.scores, each.scores), 1))
    for one, other in itertools.combinations(chosen, 2):
        numbers, levels = ([v for v in (one, other) if bool(v.scores.size) == which] for which in (True, False))
        text = f"{_written(one.name)}:{_written(other.name)}"
        if len(numbers) == 2:
            found.append(_product(text, (one.scores, other.scores), 2))
        elif numbers and len(levels[0].labels) <= MOST_CELLS:
            is_group = re.search(rf"\| *{re.escape(_written(levels[0].name))} *\)", formula)
            slope = f"(1 + {_written(numbers[0].name)} | {_written(levels[0].name)})"
            found.append(_by_level(slope if is_group else text, levels[0].codes, numbers[0].scores))
        elif not numbers and len(one.labels) * len(other.labels) <= MOST_CELLS:
            cells = np.where((one.codes < 0) | (other.codes < 0), -1, one.codes * len(other.labels) + other.codes)
            found.append(_by_level(text, cells, None))
    return [each for each in found if each.size]


def _product(text: str, factors: Sequence[np.ndarray], degree: int) -> Term:
    """Return the product of scores, less what powers of each of them up to a degree explain."""

    def powers(start: int, stop: int) -> np.ndarray:
        parts = [each[start:stop].astype(np.float64) for each in factors]
        distinct = parts[:1] if len(parts) == 2 and factors[0] is factors[1] else parts
        return np.stack(
            [np.ones(len(parts[0])), *(x**power for power in range(1, degree + 1) for x in distinct)], axis=1
        )

    def product(start: int, stop: int) -> np.ndarray:
        return np.prod([each[start:stop].astype(np.float64) for each in factors], axis=0)

    num_rows = len(factors[0])
    whole, base = product(0, num_rows), powers(0, num_rows)
    weights = np.linalg.lstsq(base, whole, rcond=None)[0]
    rest = float(np.var(whole - base @ weights))
    return Term(
        text,
        int(rest > _LEAST * max(1.0, float(np.var(whole)))),
        lambda start, stop: (product(start, stop) - powers(start, stop) @ weights)[:, None],
    )


def _by_level(text: str, codes: np.ndarray, scores: np.ndarray | None) -> Term:
    """Return an indicator of each level, or the scores of each level, centred."""
    size = int(codes.max(initial=-1)) + 1
    is_known = codes >= 0
    counts = np.maximum(np.bincount(codes[is_known], minlength=size), 1)
    means = np.zeros(size) if scores is None else np.bincount(codes[is_known], scores[is_known], size) / counts

    def features(start: int, stop: int) -> np.ndarray:
        found, own = np.zeros((stop - start, size)), codes[start:stop]
        at = np.flatnonzero(own >= 0)
        found[at, own[at]] = 1.0 if scores is None else scores[start:stop][at] - means[own[at]]
        return found

    return Term(text, size, features)
