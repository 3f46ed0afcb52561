"""Rows that stand for many: sums of squares of a normal outcome, and rows that occur several times.

A cell consists of all rows with the same levels of all groups. For a normal outcome, its likelihood is a function of the
products of the columns, whatever these are, so the cost of a gradient grows with the number of cells. For other families,
rows that are equal in all columns become one row, with their number as its weight. Both are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.models.base import Condensed, HostRows, ReadBlocks, Rows
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.fit import add_levels

ROOT = "root_of_products"
"""Field with a square root of the products of the columns and, as the last one, the outcome less the quick fit."""

CENTER = "outcome_center"
"""Field with the number subtracted from the outcomes of a cell before their products were computed."""

_LEAST_GAIN = 2
"""Least factor by which condensed rows must hold fewer numbers than the rows, to be worth a separate program."""


class Layout(NamedTuple):
    """The columns of a cell's products: ones if anything is constant in a cell, the design, slopes of groups, the outcome.

    Attributes:
        has_intercept: whether the population has an intercept.
        num_columns: number of columns of the design.
        groups: group effects.
    """

    has_intercept: bool
    num_columns: int
    groups: tuple[Group, ...]

    @property
    def has_constant(self) -> bool:
        """Whether there is a column of ones, for intercepts of the population and of groups."""
        return self.has_intercept or any(group.has_intercept for group in self.groups)

    @property
    def width(self) -> int:
        """Number of columns, with the outcome."""
        slopes = sum(g.num_effects - g.has_intercept for g in self.groups)
        return self.has_constant + self.num_columns + slopes + 1

    def residuals(self, rows: HostRows, location: np.ndarray) -> np.ndarray:
        """Return the outcome of rows less the offset and the quick fit, (row,)."""
        outcome = np.asarray(rows["outcome"], float) - np.asarray(rows.get("offset", 0.0), float)
        if self.has_intercept:
            outcome = outcome - location[0]
        if self.num_columns:
            outcome = outcome - np.einsum("np,p->n", rows["design"], location[int(self.has_intercept) :])
        return outcome

    def of_rows(self, rows: HostRows, outcome: np.ndarray) -> np.ndarray:
        """Return the columns of rows followed by `outcome`, (row, width), each times the square root of the row's weight."""
        parts = [np.ones((len(outcome), 1))] if self.has_constant else []
        parts += [rows["design"]] if self.num_columns else []
        parts += [rows[f"effects_{g.number}"] for g in self.groups if g.num_effects > g.has_intercept]
        columns = np.concatenate([*parts, outcome[:, None]], axis=1)
        return columns * np.sqrt(np.asarray(rows["weights"], float))[:, None] if "weights" in rows else columns

    def along(
        self, line: Float[Array, " c"], effects: Mapping[str, Array], num_cells: int, center: Array | None = None
    ) -> Float[Array, "cells width"]:
        """Return the coefficients of the columns in each cell, with -1 for the outcome.

        Args:
            line, effects: as for `log_likelihood`.
            num_cells: number of cells; 1 if they all have the same coefficients.
            center: number subtracted from the outcomes of each cell.
        """
        constant = jnp.broadcast_to(line[0] if self.has_intercept else jnp.zeros((), line.dtype), (num_cells,))
        slopes = []
        for group in self.groups:
            own = effects[group.effects]
            constant = constant + own[:, 0] if group.has_intercept else constant
            slopes.append(own[:, int(group.has_intercept) :])
        constant = constant if center is None else constant - center
        parts = [constant[:, None]] if self.has_constant else []
        if self.num_columns:
            parts.append(jnp.broadcast_to(line[int(self.has_intercept) :][None], (num_cells, self.num_columns)))
        return jnp.concatenate([*parts, *slopes, -jnp.ones((num_cells, 1), line.dtype)], axis=1)

    def log_likelihood(
        self, line: Float[Array, " c"], effects: Mapping[str, Array], rows: Rows, sigma: Array
    ) -> Float[Array, " rows"]:
        """Return the log likelihood of cells, but for the constant of each row.

        Args:
            line: intercept, if there is one, and standardised coefficients, less those of the quick fit.
            effects: latent of a group -> its effects in each cell, (row, effect).
            rows: the cells.
            sigma: standard deviation of the outcome.
        """
        along = self.along(line, effects, len(rows["num_rows"]), rows.get(CENTER))
        # Not a matrix product: XLA would call its routine for each cell, which takes ten times as long on a CPU.
        left = jnp.sum(rows[ROOT] * along[:, None, :], axis=2)
        return -0.5 * jnp.sum(jnp.square(left), axis=1) / jnp.square(sigma)


def condense_normal(layout: Layout, read_fields: ReadBlocks, num_rows: int, location: np.ndarray) -> Condensed | None:
    """Return a row for each cell; None if there are too many cells for a gain.

    Args:
        layout: layout of the columns.
        read_fields: returns an iterator over prepared rows in blocks, with the codes of all groups.
        num_rows: number of rows of the data.
        location: intercept and standardised coefficients of the quick fit, which is subtracted from the outcome.
    """
    sizes = [group.num_levels for group in layout.groups]
    local = next((group.number for group in layout.groups if group.is_local), None)
    most_cells = num_rows // (_LEAST_GAIN * layout.width)
    # The local group comes first, so that cells are sorted by it.
    order = [*([] if local is None else [local]), *(i for i in range(len(sizes)) if i != local)]
    ordered = [sizes[i] for i in order]
    cells = np.arange(math.prod(sizes)) if len(sizes) <= 1 else np.zeros(0, np.int64)
    if len(sizes) > 1:
        for rows in read_fields():
            cells = np.union1d(cells, _cell_of_rows(rows, order, ordered))
            if len(cells) > most_cells:
                return None
    if len(cells) > most_cells:
        return None
    products = np.zeros((len(cells), layout.width, layout.width))
    counts = np.zeros((len(cells), 1, 1))
    centers = np.full(len(cells), np.nan)
    for rows in read_fields():
        at = np.searchsorted(cells, _cell_of_rows(rows, order, ordered))
        residuals = layout.residuals(rows, location)
        counted = np.flatnonzero(rows["weights"]) if "weights" in rows else np.arange(len(at))
        _set_centers(centers, at[counted], residuals[counted])
        columns = layout.of_rows(rows, residuals - np.nan_to_num(centers[at]) if layout.has_constant else residuals)
        add_levels(products, at, columns, columns)
        weights = np.asarray(rows.get("weights", np.ones(len(columns))), float)[:, None]
        add_levels(counts, at, weights, np.ones_like(weights))
    roots = roots_of(products)
    fields = {ROOT: roots, "num_rows": counts[:, 0, 0]}
    fields |= {CENTER: np.nan_to_num(centers)} if layout.has_constant else {}
    codes = np.unravel_index(cells, ordered) if sizes else ()
    fields |= {f"group_{i}": c.astype(np.int32) for i, c in zip(order, codes, strict=True) if i != local}
    return Condensed(fields, () if local is None else entry_counts(codes[0], sizes[local]), are_sums=True)


def roots_of(products: np.ndarray) -> np.ndarray:
    """Return square roots R of matrices of products R^T R, (cell, width, width)."""
    # Columns of unit length: the square root of a matrix keeps no digit of entries far smaller than its largest.
    lengths = np.sqrt(np.einsum("cii->ci", products))
    lengths[lengths == 0] = 1.0
    values, vectors = np.linalg.eigh(products / (lengths[:, :, None] * lengths[:, None, :]))
    return np.asarray(np.sqrt(np.maximum(values, 0))[:, :, None] * vectors.swapaxes(1, 2) * lengths[:, None, :])


def _set_centers(centers: np.ndarray, at: np.ndarray, residuals: np.ndarray) -> None:
    """Set the centre of each new cell to its first residual: products of outcomes far from 0 would lose digits."""
    seen, first = np.unique(at, return_index=True)
    new = np.isnan(centers[seen])
    centers[seen[new]] = residuals[first[new]]


def _cell_of_rows(rows: HostRows, order: list[int], sizes: list[int]) -> np.ndarray:
    if not order:
        return np.zeros(len(rows["outcome"]), np.int64)
    return np.asarray(np.ravel_multi_index(tuple(rows[f"group_{i}"] for i in order), sizes), np.int64)


def entry_counts(codes: np.ndarray, num_levels: int) -> tuple[int, ...]:
    """Return the number of rows of each entry; empty if each has one."""
    counts = np.bincount(codes, minlength=num_levels)
    return () if (counts == 1).all() else tuple(counts.tolist())


def condense_same(read_fields: ReadBlocks, local: int | None, num_levels: int) -> Condensed | None:
    """Return each distinct row once, with the total weight of its copies; None if too many rows are distinct."""
    seen, keys, weights, like = 0, np.zeros((0, 0)), np.zeros(0), dict[str, np.ndarray]()
    for rows in read_fields():
        like = {name: v[:0] for name, v in rows.items() if name != "weights"}
        num_rows = len(rows["outcome"])
        seen += num_rows
        flat = np.concatenate([np.asarray(rows[name], float).reshape(num_rows, -1) for name in like], axis=1)
        own = np.asarray(rows.get("weights", np.ones(num_rows)), float)
        flat, own = np.concatenate([keys.reshape(-1, flat.shape[1]), flat]), np.concatenate([weights, own])
        keys, inverse = np.unique(flat, axis=0, return_inverse=True)
        weights = np.bincount(inverse.reshape(-1), weights=own, minlength=len(keys))
        if len(keys) * _LEAST_GAIN > seen:
            return None
    fields, first = {}, 0
    for name, empty in like.items():
        width = math.prod(empty.shape[1:])
        fields[name] = keys[:, first : first + width].reshape(-1, *empty.shape[1:]).astype(empty.dtype)
        first += width
    fields["weights"] = weights
    if local is None:
        return Condensed(fields, ())
    codes = fields.pop(f"group_{local}")
    by_group = np.argsort(codes, kind="stable")
    return Condensed({name: v[by_group] for name, v in fields.items()}, entry_counts(codes, num_levels))
