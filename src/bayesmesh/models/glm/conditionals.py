"""Updates of a normal outcome with effects of several groups, by which the kernel `gibbs` samples it.

Given everything else, all effects of a group are normal and independent of each other, and so are intercept and coefficients
together. Draws in turn explore the intercept slowly, because the effects of every group may carry a part of it; a shift
between both changes no likelihood and is redrawn exactly before each turn. With the shift, the number of turns that a draw
needs does not grow with the data (Papaspiliopoulos, Roberts and Zanella 2020, doi:10.1093/biomet/asz058).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Bool, Float, Key

from bayesmesh.models.base import Latents, Regression, Rows
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.plan import Plan
from bayesmesh.models.glm.predictor import Predictor


def prior_of_units(group: Group, latents: Latents) -> Float[Array, " level"]:
    """Return the log prior of the effects of each level, up to a constant."""
    effects = latents[group.effects]
    return -0.5 * jnp.sum(jnp.square(effects / latents[group.sd].astype(effects.dtype)[None]), axis=1)


def regression(group: Group, response: Float[Array, " rows"], latents: Latents, rows: Rows) -> Regression:
    """Return the regression of what is left of the outcome on the columns that the effects of a group multiply."""
    parts = [jnp.ones((len(response), 1), response.dtype)] if group.has_intercept else []
    parts += [rows[f"effects_{group.number}"]] if group.num_effects > group.has_intercept else []
    weight = rows.get("weights", jnp.ones_like(response)) / jnp.square(latents["sigma"]).astype(response.dtype)
    unit = None if group.is_local else rows[f"group_{group.number}"]
    return Regression({group.effects: jnp.concatenate(parts, axis=1)}, response, weight, unit)


def columns_of(main: Predictor, rows: Rows) -> Float[Array, "rows c"]:
    """Return the columns that intercept and coefficients multiply, in the units of the data."""
    parts = [jnp.ones((len(rows["outcome"]), 1))] if main.has_intercept else []
    parts += [rows["design"] * jnp.asarray(main.sd)[None]] if main.columns else []
    return jnp.concatenate([jnp.zeros((len(rows["outcome"]), 0)), *parts], axis=1)


def sums(
    main: Predictor, residual: Float[Array, " rows"], rows: Rows, is_row: Bool[Array, " rows"]
) -> dict[str, Array]:
    """Return the sums over rows, float64, from which `redraw_others` draws.

    Args:
        main: the predictor.
        residual: outcome less predictor.
        rows: a tile of rows.
        is_row: False for padding.
    """
    weights = jnp.where(is_row, rows.get("weights", jnp.ones_like(residual)), 0).astype(jnp.float64)
    columns, residual = columns_of(main, rows).astype(jnp.float64), residual.astype(jnp.float64)
    weighted = columns * weights[:, None]
    return {
        "gram": weighted.T @ columns, "cross": weighted.T @ residual,
        "square": jnp.sum(weights * jnp.square(residual)), "count": jnp.sum(weights),
    }  # fmt: skip


def redraw_others(
    key: Key[Array, ""], plan: Plan, parts: Mapping[str, Any], latents: Latents, found: Latents
) -> Latents:
    """Draw intercept and coefficients together, then the standard deviations of the outcome and of every group.

    Args:
        key: a typed key.
        plan: plan of the model.
        parts: latent -> its prior.
        latents: one draw, float64.
        found: the sums over all rows.
    """
    key_line, key_sigma, *keys = jax.random.split(key, 2 + len(plan.main.groups))
    made, variance = dict(latents), latents["sigma"] ** 2
    square = found["square"]
    names = [*(["intercept"] if plan.main.has_intercept else []), *plan.main.blocks]
    if names:
        precision, slope = (
            jnp.concatenate(each) for each in zip(*(_normal(parts[n], latents[n]) for n in names), strict=True)
        )
        order = _order(plan.main)
        precision, slope = precision[order], slope[order]
        factor = jnp.linalg.cholesky(found["gram"] / variance + jnp.diag(precision))
        noise = jax.random.normal(key_line, slope.shape, jnp.float64)
        step = cho_solve((factor, True), found["cross"] / variance + slope) + solve_triangular(
            factor, noise, lower=True, trans=1
        )
        square = square - 2 * step @ found["cross"] + step @ found["gram"] @ step
        made |= _added(plan.main, latents, step)
    made["sigma"] = _redraw_scale(key_sigma, parts["sigma"], latents["sigma"], square, found["count"])
    for own, group in zip(keys, plan.main.groups, strict=True):
        squares, number = jnp.sum(jnp.square(latents[group.effects]), axis=0), jnp.float64(group.num_levels)
        made[group.sd] = _redraw_scale(own, parts[group.sd], latents[group.sd], squares, number)
    return made


def shift(key: Key[Array, ""], plan: Plan, parts: Mapping[str, Any], latents: Latents) -> Latents:
    """Redraw a shift from the effects of every group to the intercept, which changes no predictor."""
    made = dict(latents)
    for number, group in enumerate(plan.main.groups):
        if not (plan.main.has_intercept and group.has_intercept):
            continue
        (of_intercept,), (slope,) = _normal(parts["intercept"], made["intercept"])
        effects, of_effects = made[group.effects], made[group.sd][0] ** -2
        precision = of_intercept + len(effects) * of_effects
        noise = jax.random.normal(jax.random.fold_in(key, number), (), jnp.float64)
        step = (slope + jnp.sum(effects[:, 0]) * of_effects) / precision + noise / jnp.sqrt(precision)
        made |= {"intercept": made["intercept"] + step, group.effects: effects.at[:, 0].add(-step)}
    return made


def _normal(part: Any, at: Array) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Return the precision of independent normals, and the slope of their log density at a point."""
    slope = jax.grad(part.log_prob)
    there = slope(at)
    return jnp.ravel(there - slope(at + 1)), jnp.ravel(there)


def _order(main: Predictor) -> Any:
    """Return where, in the order of the latents, each column is."""
    shift = int(main.has_intercept)
    places = [*range(shift), *(shift + i for own in main.blocks.values() for i in own)]
    return jnp.argsort(jnp.asarray(places))


def _added(main: Predictor, latents: Latents, step: Float[Array, " c"]) -> dict[str, Array]:
    """Return intercept and coefficients with a step added."""
    first = int(main.has_intercept)
    made = {"intercept": latents["intercept"] + step[0]} if first else {}
    return made | {name: latents[name] + step[first + jnp.asarray(own)] for name, own in main.blocks.items()}


def _redraw_scale(key: Key[Array, ""], part: Any, scale: Array, square: Array, number: Array) -> Array:
    """Redraw standard deviations by independence Metropolis steps, given the sum of `number` squares.

    Under a prior proportional to its inverse, the variance has an inverse gamma distribution, which is proper however few
    squares there are; it is proposed from that. The acceptance probability depends on both priors alone.
    """
    key_gamma, key_accept = jax.random.split(key)
    proposal = jnp.sqrt(square / (2 * jax.random.gamma(key_gamma, number / 2, scale.shape, jnp.float64)))
    uniform = jax.random.uniform(key_accept, scale.shape, jnp.float64)

    def log_ratio(at: Array) -> Array:
        return part.log_prob(at) + jnp.sum(jnp.log(at))

    made = scale
    # One by one, because the prior of several is one number.
    for i in np.ndindex(scale.shape):
        tried = made.at[i].set(proposal[i])
        made = jnp.where(jnp.log(uniform[i]) < log_ratio(tried) - log_ratio(made), tried, made)
    return made
