"""Effects of a normal outcome that are integrated out: the density of the other latents, and draws of the effects given these.

Given everything else, the effects u of a level are normal. With u = L z, where L L^T is their covariance, z has the precision
M = 1 + L^T Z^T Z L / sigma^2 and the mean that minimises the squares of the level's residuals and of z together. The integral
is the density at this mean, divided by the square root of the determinant of M (Lindley and Smith 1972; Bates et al. 2015,
doi:10.18637/jss.v067.i01, equation 34). It follows from sums of products over the rows of each level, computed once. Outcomes
are centred at the least-squares effects of their level before that, so that no digits are lost where effects are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from bayesmesh.models.base import Condensed, Latents, ReadBlocks, Rows
from bayesmesh.models.glm.condensed import ROOT, Layout, roots_of
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.fit import add_levels
from bayesmesh.models.glm.triangular import (
    entries,
    factor_of,
    inverse_of,
    joined,
    log_det,
    solve,
    solve_upper,
    times,
    total,
    turned,
)

GRAM, CROSS, EFFECTS = "gram", "cross", "least_squares"
"""Fields of a level: products of the columns of its effects with each other, and with all other columns and the centred
outcome; and the effects at which outcomes are centred."""

_MOST_NUMBERS = 2**26
"""Largest size of the sums of products, in numbers of 8 bytes; beyond it, effects are sampled."""


def fits(num_levels: int, num_effects: int, width: int, num_groups: int) -> bool:
    """Return whether the sums of products are small enough to be held in memory.

    Args:
        num_levels, num_effects: of the group, at most.
        width: number of columns with the outcome, at most.
        num_groups: number of groups; with several, each level has its own root of the products of all columns.
    """
    return num_levels * (num_effects if num_groups == 1 else width) * width <= _MOST_NUMBERS


def condense_levels(layout: Layout, group: Group, read_fields: ReadBlocks, location: np.ndarray) -> Condensed:
    """Return a row for each level of a group.

    Args:
        layout: layout of the columns of the population and of the other groups, in which a level lies in one level each.
        group: the group whose effects are integrated out.
        read_fields: returns an iterator over prepared rows in blocks, with the codes of all groups.
        location: intercept and standardised coefficients of the quick fit, which is subtracted from the outcome.
    """
    num_levels, num_effects, width = group.num_levels, group.num_effects, layout.width
    gram, right = np.zeros((num_levels, num_effects, num_effects)), np.zeros((num_levels, num_effects, 1))
    counts = np.zeros(num_levels)
    codes = {f"group_{other.number}": np.zeros(num_levels, np.int32) for other in layout.groups}
    for rows in read_fields():
        at, columns, weights = _effects_of_rows(group, rows)
        add_levels(gram, at, weights * columns, columns)
        add_levels(right, at, weights * columns, layout.residuals(rows, location)[:, None])
        counts += np.bincount(at, weights[:, 0], minlength=num_levels)
        for name, own in codes.items():
            own[at] = rows[name]
    centre = (np.linalg.pinv(gram, hermitian=True) @ right)[:, :, 0]
    cross, products = (
        np.zeros((num_levels, num_effects, width)),
        np.zeros((num_levels if layout.groups else 1, width, width)),
    )
    for rows in read_fields():
        at, columns, weights = _effects_of_rows(group, rows)
        away = layout.residuals(rows, location) - np.einsum("nq,nq->n", columns, centre[at])
        others = layout.of_rows(rows, away)
        add_levels(cross, at, np.sqrt(weights) * columns, others)
        add_levels(products, at if layout.groups else np.zeros_like(at), others, others)
    fields = {
        ROOT: _dealt(roots_of(products), num_levels),
        GRAM: gram,
        CROSS: cross,
        EFFECTS: centre,
        "num_rows": counts,
    }
    return Condensed({**fields, **codes}, (), are_sums=True)


def _effects_of_rows(group: Group, rows: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the level of each row, the columns that its effects multiply, and its weight, (row, 1)."""
    columns = group.columns_of_effects(rows)
    weights = np.asarray(rows.get("weights", np.ones(len(columns))), float)
    return rows[f"group_{group.number}"], columns, weights[:, None]


def _dealt(roots: np.ndarray, num_levels: int) -> np.ndarray:
    """Return a root for each level; the rows of a single root of all levels are dealt out to them, because only their sum counts."""
    if len(roots) == num_levels:
        return roots
    each = -(-roots.shape[1] // num_levels)
    found = np.zeros((num_levels * each, roots.shape[2]))
    found[: roots.shape[1]] = roots[0]
    return found.reshape(num_levels, each, -1)


class Levels(NamedTuple):
    """Sums of products over the rows of each level, and the latents that are not integrated out.

    Attributes:
        scale: (effect,) standard deviations or, of correlated effects, (effect, effect), Cholesky factor of the covariance.
        variance: (), of the outcome.
        squares: (level,), squares of the residuals with the effects at their centre.
        right: (level, effect), products of these residuals, with the sign of predictions, with the columns of the effects.
        gram: (level, effect, effect), products of these columns.
        centre: (level, effect), effects at which outcomes are centred.
    """

    scale: Array
    variance: Array
    squares: Array
    right: Array
    gram: Array
    centre: Array

    def effects(self, normals: Float[Array, "level effect"]) -> Float[Array, "level effect"]:
        """Return effects from standard normal numbers."""
        given = _Given.of(self)
        away = solve_upper(given.factor, entries(normals[..., None], self.gram.shape[-1]))
        return joined(times(given.scale, given.mean + away))[..., 0]


class _Given(NamedTuple):
    """Standardised effects given the other latents, with sums of products; matrices as `triangular` has them.

    Attributes:
        scale: standard deviations, a column, or the Cholesky factor of the covariance.
        right, gram, centre: as of `Levels`, vectors as columns.
        factor: Cholesky factor of the precision.
        mean: mean.
    """

    scale: Any
    right: Any
    gram: Any
    centre: Any
    factor: Any
    mean: Any

    @classmethod
    def of(cls, levels: Levels) -> _Given:
        size = levels.gram.shape[-1]
        scale, gram = entries(levels.scale.reshape(size, -1), size), entries(levels.gram, size)
        right, centre = (entries(each[..., None], size) for each in (levels.right, levels.centre))
        across = scale if levels.scale.ndim == 1 else turned(scale)
        factor = factor_of(across, gram / levels.variance)
        towards = times(across, gram @ centre - right) / levels.variance
        return cls(scale, right, gram, centre, factor, solve(factor, towards))

    def value(self, levels: Levels) -> tuple[Float[Array, " level"], Float[Array, " level"]]:
        """Return the log density of each level, and the squares of the residuals at the mean of the effects."""
        away = times(self.scale, self.mean) - self.centre
        squares = levels.squares + total(away * (self.right * 2 + self.gram @ away))
        return -0.5 * (squares / levels.variance + total(self.mean * self.mean)) - log_det(self.factor), squares


@jax.custom_jvp
def log_density(levels: Levels) -> Float[Array, " level"]:
    """Return the log density of the outcomes of each level, but for the constant of each row."""
    return _Given.of(levels).value(levels)[0]


@log_density.defjvp
def _differentiate(primals: tuple[Levels], tangents: tuple[Levels]) -> tuple[Array, Array]:
    """Return the value and its change: the mean of that of the log density of all latents, over the effects given the rest.

    For latents alone: the sums of the data have no tangents. It costs less than half of differentiating through the factorisation.
    """
    (levels,), (change,) = primals, tangents
    given, size, variance = _Given.of(levels), levels.gram.shape[-1], levels.variance
    value, squares = given.value(levels)
    right, scale = entries(change.right[..., None], size), entries(change.scale.reshape(size, -1), size)
    away = times(given.scale, given.mean) - given.centre
    slope = (given.right + given.gram @ away) / variance
    found = -0.5 * change.squares / variance - total(away * right) / variance - total(slope * times(scale, given.mean))
    # M^-1 is what the prior still says about the effects; the share of the rows is 1 - M^-1.
    inverse = inverse_of(given.factor)
    if levels.scale.ndim == 1:
        relative = change.scale / levels.scale
        found = found - jnp.sum(relative) + total(inverse * inverse * turned(entries(relative[:, None], size)))
    else:
        relative = solve_triangular(levels.scale, change.scale, lower=True)
        found = found - jnp.trace(relative) + total(inverse @ entries(relative, size) * inverse)
    known = size - total(inverse * inverse)
    return value, found + 0.5 * (squares / variance + known) * change.variance / variance


def sums_of_levels(
    layout: Layout, group: Group, line: Float[Array, " c"], effects: Mapping[str, Array], latents: Latents, rows: Rows
) -> Levels:
    """Return the sums that the effects of a group are integrated out from.

    Args:
        layout: layout of the columns of the population and of the other groups.
        group: the group.
        line: intercept, if there is one, and standardised coefficients, less those of the quick fit.
        effects: latent of another group -> its effects in each level, (level, effect).
        latents: the other latents.
        rows: condensed rows, one for each level.
    """
    if effects:
        along = layout.along(line, effects, len(rows[GRAM]))
        left, right = (jnp.sum(rows[name] * along[:, None, :], axis=2) for name in (ROOT, CROSS))
    else:
        along = layout.along(line, {}, 1)[0]
        left, right = rows[ROOT] @ along, rows[CROSS] @ along
    scale = group.scale(latents) if group.is_correlated else latents[group.sd]
    squares = jnp.sum(jnp.square(left), axis=1)
    return Levels(scale, jnp.square(latents["sigma"]), squares, right, rows[GRAM], rows[EFFECTS])
