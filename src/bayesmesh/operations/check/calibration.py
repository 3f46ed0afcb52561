"""Two tests of draws: do posteriors of simulated datasets cover the truth, and do prior draws follow the prior density?

In simulation-based calibration, the truth is anywhere in its posterior with the same probability.

Over datasets simulated from the model, the rank of the true value among posterior draws is uniform for every quantity
(Talts et al. 2018, arXiv:1804.06788). The log likelihood is one of the quantities, because ranks of latents alone cannot
detect a posterior that ignores its data (Modrak et al. 2023, doi:10.1214/23-BA1404).

For draws z from a prior with density p in unconstrained space, the gradient g of log p has mean 0 and z g has mean -1 (Stein
1981, doi:10.1214/aos/1176345632), unless, for example, a Jacobian is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.kernels.base import Position
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.prior_draws import Simulated
from bayesmesh.sampling.density.summaries import spread_evenly
from bayesmesh.sampling.program.datasets import DatasetPrograms, Draws
from bayesmesh.sampling.program.values import GroupKey

MOST_COORDINATES = 12
"""Coordinates of a latent whose ranks are tested, evenly spread."""

MOST_BINS = 20
FEWEST_PER_BIN = 5
"""Expected number of datasets per bin below which the chi-squared approximation is not to be trusted."""

FEWEST_DRAWS = 19
"""Number of independent draws per dataset below which ranks are uninformative."""

NUM_PRIOR_DRAWS = 256
"""Number of prior draws."""

_MOST_ERRORS = 7.0
"""Number of standard errors beyond which a mean is wrong, even the largest over many coordinates."""

Quantities = dict[str, tuple[np.ndarray, np.ndarray]]
"""Name -> true values (dataset,) and draws (dataset, draw, chain)."""


class Calibration(NamedTuple):
    """p-values of uniform ranks.

    Attributes:
        p_values: quantity -> p-value; NaN if any of its values is not finite.
        num_ranked: number of nearly independent draws per dataset among which the truth was ranked.
    """

    p_values: dict[str, float]
    num_ranked: int

    @property
    def smallest(self) -> float:
        """The smallest p-value times the number of p-values, at most 1 (Bonferroni); NaN if any is."""
        return float(np.minimum(1.0, np.min(list(self.p_values.values())) * len(self.p_values)))


def calibrate(programs: DatasetPrograms, simulated: Simulated, num_draws: int, seed: int) -> Calibration:
    """Sample from the posterior of every simulated dataset and rank the truth.

    Args:
        programs: programs for this number of datasets.
        simulated: the datasets.
        num_draws: draws of each chain; they are thinned until nearly independent.
        seed: seed of the chains.
    """
    data = programs.put_data({k: v.reshape(-1, *v.shape[2:]) for k, v in simulated.rows.items()})
    draws = programs.run(programs.arguments(GroupKey(seed, 0)), data, num_draws)

    @jax.jit
    @jax.vmap
    def log_likelihood(position: object, data: object) -> jax.Array:
        bound = programs.program.target.bind(data)  # type: ignore[arg-type]  # a tree of tracers
        return bound.log_density(jax.tree.map(lambda x: x[None], position)).log_likelihood[0]

    truth = {**simulated.latents, "log likelihood": np.asarray(log_likelihood(simulated.position, data))}
    return rank(_quantities(truth, draws))


def rank(quantities: Quantities) -> Calibration:
    """Return the p-values of the truth's ranks among thinned draws.

    >>> generator = np.random.default_rng(0)
    >>> found = rank({"x": (generator.normal(size=200), generator.normal(size=(200, 50, 2)))})
    >>> found.smallest > 0.001, found.num_ranked > 50
    (True, True)
    """
    thin = max(_thinning(drawn) for _, drawn in quantities.values())
    return Calibration(
        {name: _p_value(true, drawn[:, ::thin].reshape(len(true), -1)) for name, (true, drawn) in quantities.items()},
        num_ranked=math.prod(next(iter(quantities.values()))[1][:, ::thin].shape[1:]),
    )


def _quantities(truth: Mapping[str, np.ndarray], draws: Draws) -> Quantities:
    found: Quantities = {}
    for name, true in truth.items():
        drawn = draws.latents[name] if name in draws.latents else draws.statistics["log_likelihood"]
        flat, flat_drawn = true.reshape(len(true), -1), drawn.reshape(*drawn.shape[:3], -1)
        for i in spread_evenly(flat.shape[1], MOST_COORDINATES):
            found[f"{name}[{i}]" if true.ndim > 1 else name] = flat[:, i], flat_drawn[..., i]
    return found


def _thinning(drawn: np.ndarray) -> int:
    """Return which draws of a chain are nearly independent, by the median effective sample size of the datasets."""
    table = convergence_table(np.moveaxis(drawn, 0, -1).swapaxes(0, 1))
    effective = np.nanmedian(table["ess_bulk"]) if np.isfinite(table["ess_bulk"]).any() else 1.0
    return math.ceil(min(drawn.shape[1], max(1.0, math.prod(drawn.shape[1:]) / effective)))


def _p_value(true: np.ndarray, drawn: np.ndarray) -> float:
    """Return the chi-squared p-value of ranks (dataset,) among draws (dataset, draw)."""
    if not (np.isfinite(true).all() and np.isfinite(drawn).all()):
        return math.nan
    num_ranks = drawn.shape[1] + 1
    num_bins = min(MOST_BINS, num_ranks, max(2, len(true) // FEWEST_PER_BIN))
    bin_of_rank = np.arange(num_ranks) * num_bins // num_ranks
    expected = np.bincount(bin_of_rank) * len(true) / num_ranks
    found = np.bincount(bin_of_rank[(drawn < true[:, None]).sum(axis=1)], minlength=num_bins)
    return float(stats.chisquare(found, expected).pvalue)


def unlike_draws(target: Target) -> str | None:
    """Return the latent whose draws fit its density worst, with what was seen; None if all fit."""

    def log_prior(position: Position) -> jax.Array:
        return target.prior_and_latents(position)[0]

    def terms(key: jax.Array) -> tuple[dict[str, jax.Array], ...]:
        position = target.sample_prior(key)
        z, slope = (target.position.unpack(x, jnp.dtype("float64")) for x in (position, jax.grad(log_prior)(position)))
        return dict(slope), {name: 1 + z[name] * slope[name] for name in z}

    def add(sums: list[jax.Array], key: jax.Array) -> tuple[list[jax.Array], None]:
        found = [x for term in terms(key) for x in (term, jax.tree.map(jnp.square, term))]
        return jax.tree.map(jnp.add, sums, found), None

    keys = jax.random.split(jax.random.key(2), NUM_PRIOR_DRAWS)
    none = [jax.tree.map(jnp.zeros_like, x) for term in jax.eval_shape(terms, keys[0]) for x in (term, term)]
    shift, shift_squares, width, width_squares = jax.device_get(jax.jit(lambda: jax.lax.scan(add, none, keys)[0])())
    worst, said = _MOST_ERRORS, None
    for sums, squares, wanted in (
        (shift, shift_squares, "slope"),
        (width, width_squares, "value times slope, plus 1,"),
    ):
        for name in sums:
            with np.errstate(invalid="ignore", divide="ignore"):
                mean, square = sums[name] / NUM_PRIOR_DRAWS, squares[name] / NUM_PRIOR_DRAWS
                errors = np.abs(mean) / np.sqrt((square - mean**2) / (NUM_PRIOR_DRAWS - 1))
            # A coordinate without a spread, or with draws at which nothing is finite, is uninformative.
            if (largest := np.where(np.isfinite(errors), errors, 0).max(initial=0)) > worst:
                worst, said = (
                    largest,
                    (
                        f"the draws of latent '{name}' are not those of its density: in unconstrained space the mean of"
                        f" {wanted} is {largest:.0f} standard errors from 0"
                    ),
                )
    return said
