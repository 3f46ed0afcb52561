"""Effects of a normal outcome that are integrated out: the density of the other latents, and draws of the effects given these.

Given everything else, the effects u of a level are normal. With u = L z, where L L^T is their covariance, z has the precision
M = 1 + L^T Z^T Z L / sigma^2 and the mean that minimises the squares of the level's residuals and of z together. The integral
is the density at this mean, divided by the square root of the determinant of M (Lindley and Smith 1972; Bates et al. 2015,
doi:10.18637/jss.v067.i01, equation 34). It follows from sums of products over the rows of each level, computed once. Outcomes
are centred at the least-squares effects of their level before that, so that no digits are lost where effects are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from bayesmesh.models.base import Condensed, Latents, ReadBlocks, Rows
from bayesmesh.models.glm.condensed import ROOT, Layout, roots_of
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.fit import add_levels
from bayesmesh.models.glm.triangular import cholesky, inverse_of, solve_lower, solve_upper

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

    def standardised(self) -> tuple[Float[Array, "level effect effect"], Float[Array, "level effect"]]:
        """Return the Cholesky factors of the precisions of standardised effects, and their means."""
        half = _times(self.gram, self.scale).swapaxes(1, 2)
        inside = _times(half, self.scale) / self.variance
        factor = cholesky(inside + jnp.eye(inside.shape[1], dtype=inside.dtype)[None])
        towards = _times(_product(self.gram, self.centre) - self.right, self.scale) / self.variance
        return factor, solve_upper(factor, solve_lower(factor, towards))

    def effects(self, normals: Float[Array, "level effect"]) -> Float[Array, "level effect"]:
        """Return effects from standard normal numbers."""
        factor, mean = self.standardised()
        return _times(mean + solve_upper(factor, normals), self.scale.T)


@jax.custom_jvp
def log_density(levels: Levels) -> Float[Array, " level"]:
    """Return the log density of the outcomes of each level, but for the constant of each row."""
    factor, mean = levels.standardised()
    return _value(levels.variance, factor, mean, _squares(levels, mean))


@log_density.defjvp
def _differentiate(primals: tuple[Levels], tangents: tuple[Levels]) -> tuple[Array, Array]:
    """Return the value and its change: the mean of that of the log density of all latents, over the effects given the rest.

    For latents alone: the sums of the data have no tangents. It costs a third of differentiating through the factorisation.
    """
    (levels,), (change,) = primals, tangents
    factor, mean = levels.standardised()
    inverse = inverse_of(factor)
    away = _times(mean, levels.scale.T) - levels.centre
    slope = (levels.right + _product(levels.gram, away)) / levels.variance
    found = -0.5 * change.squares / levels.variance - jnp.sum(away * change.right, axis=1) / levels.variance
    found = found - jnp.sum(slope * _times(mean, change.scale.T), axis=1)
    # What the rows say about the effects, of which 1 is everything: L^T Z^T Z L / sigma^2 times the covariance.
    if levels.scale.ndim == 1:
        known = 1 - jnp.sum(jnp.square(inverse), axis=1)
        found = found - known @ (change.scale / levels.scale)
        known = jnp.sum(known, axis=1)
    else:
        covariance = jnp.einsum("lab,lac->lbc", inverse, inverse)
        share = jnp.eye(len(levels.scale), dtype=covariance.dtype)[None] - covariance
        found = found - jnp.tensordot(share, solve_triangular(levels.scale, change.scale, lower=True), 2)
        known = jnp.trace(share, axis1=1, axis2=2)
    total = _squares(levels, mean)
    found = found + 0.5 * (total / levels.variance + known) * change.variance / levels.variance
    return _value(levels.variance, factor, mean, total), found


def _value(variance: Array, factor: Array, mean: Array, squares: Array) -> Float[Array, " level"]:
    """Return the log density from the squares of the residuals at the mean of the effects, (level,)."""
    log_det = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=1, axis2=2)), axis=1)
    return -0.5 * (squares / variance + jnp.sum(jnp.square(mean), axis=1)) - log_det


def _squares(levels: Levels, mean: Float[Array, "level effect"]) -> Float[Array, " level"]:
    """Return the squares of the residuals at standardised effects."""
    away = _times(mean, levels.scale.T) - levels.centre
    return levels.squares + jnp.sum(away * (2 * levels.right + _product(levels.gram, away)), axis=1)


def _times(x: Float[Array, "*batch effect"], scale: Array) -> Float[Array, "*batch effect"]:
    """Return x times a scale, a matrix or the diagonal of one."""
    return x @ scale if scale.ndim == 2 else x * scale.reshape(*(1 for _ in x.shape[1:]), -1)


def _product(gram: Float[Array, "level q q"], x: Float[Array, "level q"]) -> Float[Array, "level q"]:
    """Return the product of a matrix and a vector of each level."""
    return jnp.sum(gram * x[:, None, :], axis=2)


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
