"""Coefficients in the units of the table, where its columns were standardised before the model saw them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bayesmesh.models.base import DataSpec, Variable
from bayesmesh.models.glm.design import Columns
from bayesmesh.models.glm.formula import Factor

NAME, SIGMA = "b_original", "sigma_original"
"""Summaries: coefficients of products of columns in their own units, and the standard deviation of the outcome."""

Product = tuple[str, ...]
"""Columns and levels that are multiplied; empty for the intercept."""


class Original(NamedTuple):
    """A predictor as a polynomial in the columns of the table.

    Attributes:
        products: products of columns and levels, the intercept first.
        matrix: (product, coefficient), applied to the coefficients of the design.
        shift, scale: from the unit of the predictor to that of the table.
    """

    products: tuple[Product, ...]
    matrix: np.ndarray
    shift: float
    scale: float

    @property
    def labels(self) -> tuple[str, ...]:
        """One label for each product, such as ``age:species[elm]``."""
        return tuple(":".join(each) or "intercept" for each in self.products)

    def of(self, coefficients: Array, intercept: Array | float) -> Array:
        """Return the coefficients in the units of the table, the intercept first.

        Args:
            coefficients: (column, ...), coefficients of the design.
            intercept: intercept where all columns of the design are 0.
        """
        values = jnp.tensordot(jnp.asarray(self.matrix, coefficients.dtype), coefficients, axes=1)
        values = values.at[0].add(intercept) * self.scale
        return values.at[0].add(self.shift)


def original_of(columns: Sequence[Columns], spec: DataSpec, shift: float, scale: float) -> Original | None:
    """Return the map to coefficients in the units of the table; None if no column of the formula was standardised.

    A factor that is a transform stays a transform of standardised numbers, as its label says. For an ordinal outcome, the
    intercept is the number to subtract from the cutpoints.

    Args:
        columns: columns of the predictor, by term.
        spec: description of the prepared data.
        shift, scale: from the unit of the predictor to that of the table.
    """
    parts = _in_one_order([part for each in columns for part in _expand(each, spec)])
    # Columns that were not standardised are products of one length, one of them or the difference of two levels.
    is_same = all(set(map(abs, part.values())) == {1.0} and len(set(map(len, part))) == 1 for part in parts)
    if (shift, scale) == (0.0, 1.0) and is_same:
        return None
    # The intercept precedes all.
    products = list(dict.fromkeys([(), *_products(parts)]))
    matrix = np.array([[part.get(product, 0.0) for part in parts] for product in products])
    return Original(tuple(products), matrix, shift, scale)


def is_standardised(about: Variable) -> bool:
    """Return whether a column was standardised before the model saw it."""
    return (about.mean, about.scale) != (0.0, 1.0)


def unit_of(outcome: Factor, variables: Mapping[str, Variable]) -> tuple[float, float]:
    """Return shift and scale from the unit in which the model reads the outcome to that of the table."""
    about = variables.get(outcome.text) if outcome.is_plain else None
    return (about.mean, about.scale) if about is not None and is_standardised(about) else (0.0, 1.0)


def _expand(columns: Columns, spec: DataSpec) -> Iterator[Mapping[Product, float]]:
    """Yield, for each column of a term, product -> factor, from ``(x - mean) / scale`` of each of its numbers."""
    for coding in columns.codings:
        made: list[dict[Product, float]] = [{(): 1.0}]
        for factor, levels in zip(columns.term, coding, strict=True):
            if levels is None:
                entries = spec.labels.get(factor.text, ()) if factor.is_plain else ()
                own = [_of_number(f"{factor.text}[{e}]", spec.variables.get(e)) for e in entries]
                plain = spec.variables.get(factor.text) if factor.is_plain else None
                own = own or [_of_number(factor.text, plain) if factor.is_plain else {(_transform(factor, spec),): 1.0}]
            elif not levels.codes:
                continue
            else:
                names = [f"{factor.text}[{name}]" for name in spec.variables[factor.text].levels]
                less: dict[Product, float] = {} if levels.negative is None else {(names[levels.negative],): -1.0}
                own = [{(names[i],): 1.0, **less} for i in levels.codes]
            made = [_multiply(one, other) for one in made for other in own]
        yield from made


def _products(parts: Sequence[Mapping[Product, float]]) -> Iterator[Product]:
    """Yield the products of columns, longest first, so that a term precedes the products that its expansion adds to."""
    return (product for part in parts for product in sorted(part, key=len, reverse=True))


def _in_one_order(parts: Sequence[Mapping[Product, float]]) -> list[dict[Product, float]]:
    """Return columns with the factors of equal products in the order of the first: ``x:z`` and ``z:x`` are one coefficient."""
    first: dict[Product, Product] = {}
    for product in _products(parts):
        first.setdefault(tuple(sorted(product)), product)
    made: list[dict[Product, float]] = []
    for part in parts:
        made.append({})
        for product, factor in part.items():
            name = first[tuple(sorted(product))]
            made[-1][name] = made[-1].get(name, 0.0) + factor
    return made


def _transform(factor: Factor, spec: DataSpec) -> str:
    """Return the label of a transform, with the columns that were standardised before it."""
    within = [name for name in factor.names if (about := spec.variables.get(name)) and is_standardised(about)]
    return f"{factor.text} of standardised {', '.join(within)}" if within else factor.text


def _of_number(name: str, about: Variable | None) -> dict[Product, float]:
    if about is None or not is_standardised(about):
        return {(name,): 1.0}
    return {(name,): 1 / about.scale, (): -about.mean / about.scale}


def _multiply(one: Mapping[Product, float], other: Mapping[Product, float]) -> dict[Product, float]:
    found: dict[Product, float] = {}
    for a, x in one.items():
        for b, y in other.items():
            found[a + b] = found.get(a + b, 0.0) + x * y
    return found
