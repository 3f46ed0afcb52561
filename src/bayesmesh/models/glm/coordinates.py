"""Coordinates of a linear model in which its posterior is nearly standard normal.

Latents are in the units of the data, whatever the coordinates. The Jacobian of the map enters the density, so the
posterior does not depend on the map. Intercept and coefficients are centred at a quick fit and scaled by its covariance.
The effects of a level are standardised given its rows, the standard deviations of effects and the coefficients. With many
rows, this is the centred parametrisation, around the level's own mean (hierarchical centring, Gelfand, Sahu and Carlin
1995, doi:10.1093/biomet/82.3.479); without any row, the non-centred one; in between, a partial centring
(Papaspiliopoulos, Roberts and Skold 2007, doi:10.1214/088342307000000014). For normal outcomes the coordinates of the
effects are then exactly independent standard normal given the rest. Correlations are moved and scaled by the quick fit, because
with many levels they are known far better than their prior says. Effects on other parameters, such as ``sigma``, are
scaled by about what their rows say, and not moved. With many rows, parameters begin where the quick fit finds them, in the unit of
their standard errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.models._latents import Maps
from bayesmesh.models.base import DataSpec, Latents
from bayesmesh.models.glm.design import Group
from bayesmesh.models.glm.families.base import LINKS_OF_PARAMETERS, Family
from bayesmesh.models.glm.plan import Plan
from bayesmesh.models.glm.triangular import entries, factor_of, joined, log_det, solve, solve_upper, turned

tfb = tfp.bijectors

Levels = Float[Array, "level effect"]


class Coordinates:
    """The map from unconstrained space to the latents of a linear model.

    Args:
        plan: plan of the model.
        family: family of the outcome.
        spec: description of the prepared data, with the arrays of `fit.fit` where there are any.
        maps: latent -> the map of its own prior, for latents that have no other map here.
        positive: latents with a prior on all positive numbers.
    """

    def __init__(self, plan: Plan, family: Family, spec: DataSpec, maps: Mapping[str, Any], positive: set[str]) -> None:
        self._plan, self._main = plan, plan.main
        self._family, self._arrays, self._dtype = family, spec.arrays, spec.dtype
        # Effects that are integrated out have no coordinates.
        self._groups = {g.effects: g for each in plan.predictors for g in each.groups if g.effects in maps}
        self._logs = {name: pair for name, pair in self._scales().items() if name in positive}
        self._line = (
            [*(["intercept"] if plan.main.has_intercept else []), *plan.main.blocks]
            if "location" in spec.arrays
            else []
        )
        taken = {*self._groups, *self._logs, *self._line}
        self._maps = Maps({name: self._around_fit(name, each) for name, each in maps.items() if name not in taken})
        self._plain = [name for name in maps if name not in taken]
        self._num_entries = spec.num_entries

    def _scales(self) -> dict[str, np.ndarray]:
        """Return latent -> (2, ...): an estimate, and the standard deviation of its log, of those that have one."""
        found = {
            name: np.array([np.exp(first[0]), first[1]])
            for name in self._plan.parameters
            if self._family.parameters[name].link == "log" and (first := self._arrays.get(f"first_{name}")) is not None
        }
        named = {g.sd: self._arrays[f"sd_{g.number}"] for g in self._main.groups if f"sd_{g.number}" in self._arrays}
        return {**found, **named}

    def _around_fit(self, name: str, own: Any) -> Any:
        """Return the map of a latent: around the quick fit, in the unit of the standard error, where there is one."""
        if (first := self._arrays.get(f"first_{name}")) is not None:
            at, error = (self._array(each) for each in first)
            if name in self._plan.parameters:
                at = LINKS_OF_PARAMETERS[self._family.parameters[name].link][1](at)
            at = own.inverse(at)
            # The prior need not allow the estimate.
            return tfb.Chain([own, tfb.Shift(jnp.where(jnp.isfinite(at), at, 0.0)), tfb.Scale(error)])
        for predictor in self._plan.others.values():
            first = self._arrays.get(f"first_{predictor.intercept}")
            if first is not None and name in predictor.blocks:
                return tfb.Chain([own, tfb.Scale(self._array(first[1] / predictor.sd[list(predictor.blocks[name])]))])
        for group in self._main.groups:
            if name == group.correlation and f"correlation_{group.number}" in self._arrays:
                told = ((self._arrays[f"sd_{group.number}"][1] ** -2 - 1) / 2).min()
                at = own.inverse(self._array(self._arrays[f"correlation_{group.number}"]))
                scale = self._array(1 / np.sqrt(1 + told))
                return tfb.Chain([own, tfb.Shift(at), tfb.Scale(scale)])
        return own

    def _array(self, values: np.ndarray | np.generic) -> Array:
        return jnp.asarray(values, self._dtype)

    # -- intercept and coefficients ---------------------------------------------------------------------------------

    def _units(self) -> np.ndarray:
        """Return the divisors of the standardised coefficients, (c,)."""
        return np.concatenate([np.ones(int(self._main.has_intercept)), self._main.sd])

    def _join(self, values: Latents) -> Float[Array, " c"]:
        """Return intercept and coefficients in the order of the columns."""
        parts = [values["intercept"][None]] if self._main.has_intercept else []
        parts += [self._main.coefficients(values)] if self._main.columns else []
        return jnp.concatenate(parts)

    def _cut(self, joined: Float[Array, " c"]) -> dict[str, Array]:
        found, first = {}, int(self._main.has_intercept)
        if self._main.has_intercept:
            found["intercept"] = joined[0]
        return {**found, **{name: joined[first + np.asarray(at)] for name, at in self._main.blocks.items()}}

    # -- the map ----------------------------------------------------------------------------------------------------

    def forward(self, x: Latents) -> dict[str, Array]:
        """Return latents from unconstrained values."""
        y = self._maps.forward({name: x[name] for name in self._plain})
        for name, (at, sd) in self._logs.items():
            y[name] = self._array(at) * jnp.exp(self._array(sd) * x[name])
        if self._line:
            moved = self._array(self._arrays["location"]) + self._array(self._arrays["root"]) @ self._join(x)
            y |= self._cut(moved / self._array(self._units()))
        for name, group in self._groups.items():
            y[name] = self._levels(group, y).forward(x[name])
        return {name: y[name] for name in x}

    def inverse(self, y: Latents) -> dict[str, Array]:
        """Return unconstrained values from latents."""
        x = self._maps.inverse({name: y[name] for name in self._plain})
        for name, (at, sd) in self._logs.items():
            x[name] = jnp.log(y[name] / self._array(at)) / self._array(sd)
        if self._line:
            away = self._join(y) * self._array(self._units()) - self._array(self._arrays["location"])
            x |= self._cut(self._array(np.linalg.inv(self._arrays["root"])) @ away)
        for name, group in self._groups.items():
            x[name] = self._levels(group, y).inverse(y[name])
        return {name: x[name] for name in y}

    def forward_log_det_jacobian(self, x: Latents) -> Float[Array, ""]:
        """Return the log determinant of the Jacobian of `forward`."""
        terms = [self._maps.forward_log_det_jacobian({name: x[name] for name in self._plain})] if self._plain else []
        for name, (at, sd) in self._logs.items():
            terms.append(jnp.sum(self._array(np.log(at * sd)) + self._array(sd) * x[name]))
        if self._line:
            stretch = np.log(np.abs(np.diagonal(self._arrays["root"]))).sum() - np.log(self._units()).sum()
            terms.append(self._array(stretch))
        if self._groups:
            y = self.forward(x)
            terms += [self._levels(group, y).log_det() for group in self._groups.values()]
        return sum(terms[1:], start=terms[0])

    # -- effects ----------------------------------------------------------------------------------------------------

    def _levels(self, group: Group, latents: Latents) -> _Levels:
        """Return the map of the effects of a group, given all other latents."""
        num_levels = self._num_entries if group.is_local else group.num_levels
        if group.is_centred:
            return _Levels(num_levels, None, None, None)
        scale = group.scale(latents)
        name = f"{group.prefix}gram_{group.number}"
        if group.is_centred is False or name not in self._arrays:
            return _Levels(num_levels, scale, None, None)
        if group.prefix:
            gram = self._of_levels(self._arrays[name], num_levels)
            return _Levels(num_levels, scale, _factor(group, scale, gram), None)
        names = (f"{each}_{group.number}" for each in ("gram", "cross", "working"))
        gram, cross, working = (self._of_levels(self._arrays[name], num_levels) for name in names)
        centre = self._plan.at_centre(latents, self._dtype)
        if self._plan.fixed.get("sigma") == 0:
            # The known errors are the spread of the rows; the quick fit has found their size.
            centre["sigma"] = self._array(np.exp(self._arrays["first_sigma"][0]))
        precision = self._family.precision(centre)
        known = working
        if cross.shape[-1]:
            away = self._main.line(latents, self._dtype) - self._array(self._arrays["location"])
            known = working - jnp.einsum("lqc,c->lq", cross, away)
        factor = _factor(group, scale, gram * precision)
        towards = entries((known @ scale * precision)[..., None], group.num_effects)
        return _Levels(num_levels, scale, factor, solve(factor, towards))

    def _of_levels(self, values: np.ndarray, num_levels: int) -> Array:
        """Return one entry per level; a description of other data, used for its shapes alone, may have more or fewer."""
        return self._array(values if len(values) == num_levels else np.resize(values, (num_levels, *values.shape[1:])))


def _factor(group: Group, scale: Array, gram: Float[Array, "level q q"]) -> Any:
    """Return the Cholesky factor of the precision of standardised effects, as `triangular` has it, given what rows say about effects."""
    across = scale.T if group.is_correlated else jnp.diagonal(scale)[:, None]
    return factor_of(*(entries(each, group.num_effects) for each in (across, gram)))


class _Levels(NamedTuple):
    """The effects of all levels as scale @ (mean + factor^-T @ coordinates).

    Attributes:
        num_levels: number of levels.
        scale: (effect, effect), lower triangular; None where effects are their own coordinates.
        factor: lower Cholesky factor of the precision given their rows, as `triangular` has it; None for the identity.
        mean: a column; None for 0.
    """

    num_levels: int
    scale: Array | None
    factor: Any
    mean: Any

    def forward(self, x: Levels) -> Levels:
        """Return effects from coordinates."""
        if self.scale is None:
            return x
        if self.factor is not None:
            away = solve_upper(self.factor, entries(x[..., None], x.shape[-1]))
            x = joined(away if self.mean is None else self.mean + away)[..., 0]
        return x @ self.scale.T

    def inverse(self, y: Levels) -> Levels:
        """Return coordinates from effects."""
        if self.scale is None:
            return y
        scaled = solve_triangular(self.scale, y.T, lower=True).T
        if self.factor is not None:
            away = entries(scaled[..., None], scaled.shape[-1])
            scaled = joined(turned(self.factor) @ (away if self.mean is None else away - self.mean))[..., 0]
        return scaled

    def log_det(self) -> Float[Array, ""]:
        """Return the log determinant of the Jacobian of `forward`."""
        if self.scale is None:
            return jnp.zeros((), jnp.float64)
        total = self.num_levels * jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.scale))))
        if self.factor is not None:
            total = total - jnp.sum(log_det(self.factor))
        return total
