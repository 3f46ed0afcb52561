"""What the likelihood of many rows says about their predictors and the parameters of the family, for the quick fit.

A step of Fisher scoring needs the slope of each row's log likelihood in its predictor, and about its curvature. Both come from
the density itself, so outcomes that are known in part and rows of excess zeros count for what they tell, in every family.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.models.base import HostRows, Rows
from bayesmesh.models.glm import partial
from bayesmesh.models.glm.families.base import LINKS_OF_PARAMETERS, Family

NUM_ROWS = 2**15
"""Number of rows from which parameters are found; also that which is evaluated at a time."""

_DISTANCE = 1e-3
"""Distance of the two points from whose slopes a curvature is computed, in float64."""

_WIDTH = 3.0
"""Standard deviation of a prior of each parameter on the scale of its link, for parameters of which the rows say nothing."""

_LEAST = 0.01
"""Curvature of a row, as a share of that which `Family.working` gives it, below which it is not taken: the density need not be log-concave."""

_STEPS, _HALVINGS, _LONGEST = 30, 20, 2.0
"""Newton's method: number of steps, of halvings of a step that descends, and the length of the longest step."""


class Found(NamedTuple):
    """What rows say about parameters.

    Attributes:
        shift: number to add to the predictor of every row.
        values: (2, parameter), values on the scale of the link, and their standard errors.
    """

    shift: float
    values: np.ndarray


class Likelihood:
    """The log likelihood of rows as a function of their predictors and of the parameters, each one number.

    Args:
        family: family of the outcome.
        links: parameter that is unknown -> the latent that it is, or the intercept of its predictor, and its link.
        fixed: parameter -> the number to which it is set.
        is_one_sided: from `partial.is_one_sided`.
        is_partial: whether outcomes may be known in part.
    """

    def __init__(
        self, family: Family, links: Mapping[str, tuple[str, str]], fixed: Mapping[str, float], *, is_one_sided: bool, is_partial: bool
    ) -> None:  # fmt: skip
        self.links = links
        self._family, self._fixed, self._is_one_sided, self._is_partial = family, fixed, is_one_sided, is_partial
        self._evaluate = jax.jit(jax.value_and_grad(self._total, argnums=(0, 1)))

    def parameters(self, at: np.ndarray | Array) -> dict[str, Array]:
        """Return all parameters from those that are unknown, on the scale of their links."""
        found = {name: LINKS_OF_PARAMETERS[link][1](at[i]) for i, (name, (_, link)) in enumerate(self.links.items())}
        return found | {name: jnp.asarray(number, float) for name, number in self._fixed.items()}

    def begin(self, spread: float) -> np.ndarray:
        """Return values of the parameters to begin with, on the scale of their links: `spread` for ``sigma``, else of unit size."""
        usual = {"log": 1.0, "logit": 0.5, "identity": 0.0}
        own = {name: usual[self._family.parameters[name].link] for name in self.links} | {"sigma": spread}
        return np.array(
            [float(LINKS_OF_PARAMETERS[link][0](jnp.asarray(own[name]))) for name, (_, link) in self.links.items()]
        )

    def precision(self, at: np.ndarray) -> float:
        """Return `Family.precision` at some values of the parameters."""
        with jax.enable_x64(True):
            return float(self._family.precision(self.parameters(jnp.asarray(at))))

    def working(
        self, rows: HostRows, eta: np.ndarray, at: np.ndarray, usual: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and responses of rows of unit weight, as `Family.working`, with the weights for a precision of 1.

        Args:
            rows: prepared rows.
            eta: their predictors, with the offset.
            at: values of the parameters.
            usual: the weights of `Family.working`.
        """
        slope, above, below = (
            self._slopes(rows, eta + move, at, np.ones(len(eta)))[1] for move in (0, _DISTANCE, -_DISTANCE)
        )
        precision = self.precision(at)
        usual = usual * precision
        curvature = (below - above) / (2 * _DISTANCE)
        least = np.where(usual > 0, _LEAST * usual, 1e-300)
        # Where the density has no curvature, or no number at all, that of `Family.working` stands in.
        has_own = np.isfinite(curvature) & (curvature != 0)
        weight = np.maximum(np.where(has_own, curvature, usual), least)
        return weight / precision, eta + np.where(np.isfinite(slope), slope, 0) / weight

    def find(self, rows: HostRows, eta: np.ndarray, begin: np.ndarray, num_rows: float, *, has_shift: bool) -> Found:
        """Return the parameters, and a shift of all predictors, under which rows are most likely, by Newton's method.

        Args:
            rows: a sample of the prepared rows.
            eta: their predictors, with the offset.
            begin: values of the parameters.
            num_rows: sum of the weights of all rows, which the standard errors are for.
            has_shift: whether predictors may be shifted.
        """
        weights = np.asarray(rows.get("weights", np.ones(len(eta))), float)
        free = np.r_[has_shift, np.ones(len(begin), bool)].astype(float)

        def at(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, slopes, of_parameters = self._slopes(rows, eta + x[0], begin + x[1:], weights)
            value -= float(x @ x) / (2 * _WIDTH**2)
            return value, free * np.r_[slopes.sum(), of_parameters] - x / _WIDTH**2

        def curvature(x: np.ndarray) -> np.ndarray:
            moves = np.eye(len(x)) * _DISTANCE
            found = np.array([at(x - move)[1] - at(x + move)[1] for move in moves]) / (2 * _DISTANCE)
            return (found + found.T) / 2

        x = np.zeros(1 + len(begin))
        value, slope = at(x)
        for _ in range(_STEPS):
            sizes, axes = np.linalg.eigh(np.nan_to_num(curvature(x)))
            sizes = np.maximum(np.abs(sizes), _WIDTH**-2)
            step = axes @ ((axes.T @ slope) / sizes)
            gain = float(step @ slope)
            step = step * min(1.0, _LONGEST / max(float(np.abs(step).max()), 1e-300))
            for _ in range(_HALVINGS):
                next_value, next_slope = at(x + step)
                if next_value >= value:
                    x, value, slope = x + step, next_value, next_slope
                    break
                step = step / 2
            else:
                break
            if gain < 1e-4:
                break
        sizes, axes = np.linalg.eigh(np.nan_to_num(curvature(x)))
        information = np.maximum(np.abs(sizes) - _WIDTH**-2, 0) * num_rows / weights.sum() + _WIDTH**-2
        errors = np.sqrt(np.einsum("ij,j->i", np.square(axes), 1 / information))
        return Found(float(x[0]), np.stack([begin + x[1:], errors[1:]]))

    def _total(
        self, eta: Float[Array, " rows"], at: Float[Array, " k"], weights: Float[Array, " rows"], rows: Rows
    ) -> Float[Array, ""]:
        parameters = self.parameters(at)
        value = self._family.log_density(eta, rows, parameters)
        if self._is_partial:
            value = partial.log_likelihood(self._family, value, eta, rows, parameters, is_one_sided=self._is_one_sided)
        return jnp.sum(weights * value)

    def _slopes(
        self, rows: HostRows, eta: np.ndarray, at: np.ndarray, weights: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the log likelihood, its slope in each predictor, and those in the parameters."""
        names = [name for name in ("outcome", "trials", "above", "up_to", "lower", "upper") if name in rows]
        slopes, value, of_parameters = np.zeros(len(eta)), 0.0, np.zeros(len(at))
        with jax.enable_x64(True):
            for start in range(0, len(eta), NUM_ROWS):
                part = slice(start, start + NUM_ROWS)
                length = len(eta[part])
                # One shape for all blocks, so one compilation: rows without weight fill the last.
                own = {name: np.resize(rows[name][part], NUM_ROWS) for name in names}
                of_rows = np.where(np.arange(NUM_ROWS) < length, np.resize(weights[part], NUM_ROWS), 0.0)
                found, (of_eta, of_at) = self._evaluate(np.resize(eta[part], NUM_ROWS), jnp.asarray(at), of_rows, own)
                slopes[part] = np.asarray(of_eta)[:length]
                value, of_parameters = value + float(found), of_parameters + np.asarray(of_at)
        return value, slopes, of_parameters


def sample(blocks: Iterable[HostRows], num_rows: int) -> HostRows:
    """Return about `NUM_ROWS` of the rows, each with the same probability and the same ones whatever the blocks are."""
    random, parts = np.random.default_rng(0), []
    for rows in blocks:
        is_chosen = random.random(len(rows["outcome"])) * num_rows < NUM_ROWS
        parts.append({name: np.asarray(values)[is_chosen] for name, values in rows.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
