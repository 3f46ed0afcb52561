"""Bins of rows by predictors, by groups and by the prediction itself, within which residuals are summed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from bayesmesh.analyses.figures import formats
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.ranks import average_ranks

MOST_BINS, BIN_ROWS = 10, 20
"""Bins of a number, and the fewest rows of one."""

MOST_LEVELS = 200
"""Largest number of levels of a category with a bin; beyond it, the rarest are left out."""

FEWEST_ROWS = 3
"""Rows of a whole number, on average, from which it may be the name of a group."""

MOST_VARIABLES = 32

MIDDLE = (0.05, 0.95)
"""Quantiles that enclose the middle 90% of the outcomes of a bin."""

MIN_ROWS = 2 * BIN_ROWS
"""Fewest rows that are binned."""

COMPARED_ROWS = 65_536
"""About the largest number of rows at which a column is compared with the outcome."""

_SAME = 0.999
"""Rank correlation from which a column counts as the outcome itself in another form."""


class Variable(NamedTuple):
    """Rows by bins of one variable.

    Attributes:
        name: of the column.
        codes: (row,) int16, bin of each row; -1 for none.
        labels: one for each bin, in the unit of the table.
        at: mean of the numbers in each bin; empty for levels.
        middle: (bin, 2), quantiles that enclose the middle 90% of the outcomes of each bin; empty if they were not
            computed.
        scores: (row,) float32, the numbers, centred, in standard deviations, 0 where unknown; empty for levels.
        is_field: whether a formula can name the column.
        is_whole: whether these are a few whole numbers, which may be the names of groups.
    """

    name: str
    codes: Int[np.ndarray, " row"]
    labels: tuple[str, ...]
    at: tuple[float, ...] = ()
    middle: tuple[tuple[float, float], ...] = ()
    scores: Shaped[np.ndarray, " row"] = np.zeros(0, np.float32)
    is_field: bool = True
    is_whole: bool = False


def bin_numbers(name: str, values: Shaped[np.ndarray, " row"]) -> Variable | None:
    """Return bins of equal counts, as far as ties allow; None if all values are equal.

    >>> found = bin_numbers("x", np.arange(60.0))
    >>> found.labels, np.bincount(found.codes).tolist()
    (('0 to 19.67', '19.67 to 39.33', '39.33 to 59'), [20, 20, 20])
    """
    is_known = np.isfinite(values)
    known = values[is_known].astype(np.float64)
    if known.size < MIN_ROWS:
        return None
    number = min(MOST_BINS, known.size // BIN_ROWS)
    distinct = np.unique(known)
    if len(distinct) <= number:
        edges = distinct[1:]
        labels = formats.distinct(distinct.tolist())
    else:
        edges = np.unique(np.quantile(known, np.arange(1, number) / number))
        edges = edges[edges > distinct[0]]
        ends = formats.distinct([float(end) for end in (distinct[0], *edges, distinct[-1])])
        labels = [f"{low} to {high}" for low, high in itertools.pairwise(ends)]
    if len(labels) < 2:
        return None
    codes = np.where(is_known, np.searchsorted(edges, values, side="right"), -1)
    inside = codes[is_known]
    sums, counts = (np.bincount(inside, weights, len(labels)) for weights in (known, None))
    at = np.divide(sums, counts, out=np.full(len(labels), np.nan), where=counts > 0)
    scores = np.where(is_known, (values - known.mean()) / known.std(), 0).astype(np.float32)
    is_whole = len(distinct) <= min(MOST_LEVELS, known.size // FEWEST_ROWS) and np.allclose(
        distinct, np.rint(distinct), rtol=0, atol=1e-6
    )
    return Variable(name, codes.astype(np.int16), tuple(labels), tuple(at.tolist()), scores=scores, is_whole=is_whole)


def bin_levels(name: str, codes: Int[np.ndarray, " row"], levels: tuple[str, ...]) -> Variable | None:
    """Return one bin for each level that occurs, or for the most frequent of many; None if there is only one."""
    found, counts = np.unique(codes, return_counts=True)
    chosen = np.sort(found[np.argsort(-counts, kind="stable")[:MOST_LEVELS]])
    if len(chosen) < 2 or len(codes) < MIN_ROWS:
        return None
    place = np.minimum(np.searchsorted(chosen, codes), len(chosen) - 1)
    places = np.where(chosen[place] == codes, place, -1)
    labels = tuple(levels[i] if 0 <= i < len(levels) else str(i) for i in chosen.tolist())
    return Variable(name, places.astype(np.int16), labels)


def bin_columns(shards: Shards, outcome: Shaped[np.ndarray, " row"]) -> list[Variable]:
    """Return the bins of the columns that the data have, whether or not the model reads them.

    Columns with a role, such as weights, and columns that hold the outcome itself are left out.

    Args:
        shards: the data as the model takes them.
        outcome: of all rows, in the model's order.

    Returns:
        Codes in the model's order, at most `MOST_VARIABLES` columns.
    """
    source = Shards(shards.path)
    if source.kind != "rows" or source.num_rows != len(outcome) or len(outcome) < MIN_ROWS:
        return []
    order = shards.source_rows()
    columns = _list_columns(source)
    found: list[Variable] = []
    for some in itertools.batched(columns, MOST_VARIABLES):
        for column, values in zip(some, _read_columns(source, some), strict=True):
            in_order = values[order]
            about = source.variables.get(column.label)
            if len(found) == MOST_VARIABLES or _is_outcome(in_order, outcome):
                continue
            if about is not None and about.kind == "category":
                made = bin_levels(column.label, in_order, about.levels)
            else:
                in_unit = in_order if about is None else in_order * about.scale + about.mean
                made = bin_numbers(column.label, in_unit)
            if made is not None:
                found.append(made._replace(middle=middle_of(made, outcome), is_field=column.position is None))
        if len(found) == MOST_VARIABLES:
            break
    return found


def middle_of(variable: Variable, outcome: Shaped[np.ndarray, "... row"]) -> tuple[tuple[float, float], ...]:
    """Return `Variable.middle` of outcomes, or of several sets of outcomes together."""
    codes = np.broadcast_to(variable.codes, outcome.shape).ravel()
    in_order = outcome.ravel()[np.lexsort((outcome.ravel(), codes))].astype(np.float64)
    ends = np.searchsorted(np.sort(codes), np.arange(len(variable.labels) + 1))
    parts = [in_order[start:stop] for start, stop in itertools.pairwise(ends)]
    found = [np.quantile(part, MIDDLE) if len(part) else np.full(2, np.nan) for part in parts]
    return tuple((float(low), float(high)) for low, high in found)


class _Column(NamedTuple):
    """A column of the data: a field with one number per row, or a column of a field with a small matrix."""

    label: str
    field: str
    position: int | None


def _list_columns(source: Shards) -> list[_Column]:
    """Return the columns without a role; their labels are unique."""
    roles = set(source.roles.values())
    found: list[_Column] = []
    for name, spec in source.fields.items():
        if name in roles or np.dtype(spec.dtype).kind not in "biuf" or len(spec.shape) > 1:
            continue
        if not spec.shape:
            found.append(_Column(name, name, None))
        elif spec.shape[0] <= MOST_VARIABLES:
            labels = source.labels.get(name) or tuple(f"{name}[{i}]" for i in range(spec.shape[0]))
            named = [f"{name}: {label}" if label in source.fields else label for label in labels]
            found += [_Column(label, name, i) for i, label in enumerate(named)]
    taken = [column.label for column in found]
    return [
        each._replace(label=f"{each.field}: {each.label}") if taken.count(each.label) > 1 else each for each in found
    ]


def _read_columns(source: Shards, columns: Sequence[_Column]) -> list[np.ndarray]:
    """Return the columns, (row,) each, in the order of the source."""
    parts: list[list[np.ndarray]] = [[] for _ in columns]
    for block in source.blocks():
        for part, column in zip(parts, columns, strict=True):
            values = block[column.field]
            part.append(values if column.position is None else values[:, column.position])
    return [np.concatenate(part) for part in parts]


def _is_outcome(values: np.ndarray, outcome: np.ndarray) -> bool:
    some = slice(None, None, 1 + len(values) // COMPARED_ROWS)
    one, other = values[some].astype(np.float64), outcome[some].astype(np.float64)
    is_known = np.isfinite(one) & np.isfinite(other)
    if is_known.sum() < 3 or np.ptp(one[is_known]) == 0 or np.ptp(other[is_known]) == 0:
        return False
    ranks = [average_ranks(values[is_known]) for values in (one, other)]
    return abs(float(np.corrcoef(ranks)[0, 1])) > _SAME


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

    What the predictors of the model explain is removed from each feature.

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
