"""Compute additional convergence statistics: for quantiles, intervals, many short chains, and growing numbers of draws.

Equal to ``arviz_stats`` 1.3 up to rounding, for many coordinates at once. Each costs at least as much as all of
`convergence_table`, so pages compute them for the worst summaries only, and `efficiency_table` is computed on request.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int, Real
from scipy.special import betaincinv

from bayesmesh.diagnostics.autocovariance import effective_sample_size
from bayesmesh.diagnostics.ranks import (
    Halves,
    Ordered,
    interval_indicator,
    order_draws,
    rank_normalise,
    rank_normalise_folded,
    tail_indicator,
)

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Probabilities of the quantiles whose effective sample sizes are listed."""

NUM_INTERVALS = 10
"""Intervals of equal probability whose effective sample sizes are listed."""

EFFICIENCY_COLUMNS = ("ess_quantile", "quantile", "ess_local", "interval", "mcse_q5", "mcse_q50", "mcse_q95")
"""Statistics of `efficiency_table` without superchains."""

_LISTED_QUANTILES = (0.05, 0.5, 0.95)
_MIN_DRAWS = 4

_BLOCK_DRAWS = 2**17
"""Number of draws sorted at a time."""

_ONE_SD = (0.1586553, 0.8413447)
"""Probabilities one standard deviation below and above the mean of a normal distribution, as arviz_stats rounds them."""


def quantile_ess(
    x: Real[np.ndarray, "chain draw coordinate"], probabilities: Sequence[float]
) -> Float[np.ndarray, "probability coordinate"]:
    """Return the effective sample sizes of quantile estimates.

    Args:
        x: draws, at least four per chain, any real dtype; computed in float64.
        probabilities: of the quantiles.

    Returns:
        Effective sample size of each, in draws; NaN for a coordinate with a non-finite draw.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4.

    >>> x = np.random.default_rng(0).normal(size=(4, 100, 1))
    >>> quantile_ess(x, [0.5, 0.9]).round(-1)
    array([[420.],
           [360.]])
    """

    return _by_block(x, len(probabilities), functools.partial(_of_quantiles, probabilities=probabilities))


def _of_quantiles(ordered: Ordered, probabilities: Sequence[float]) -> Float[np.ndarray, "probability coordinate"]:
    return np.stack([effective_sample_size(tail_indicator(ordered, p)) for p in probabilities])


def local_ess(
    x: Real[np.ndarray, "chain draw coordinate"], num_intervals: int
) -> Float[np.ndarray, "interval coordinate"]:
    """Return the effective sample sizes of the probabilities of small intervals between evenly spaced quantiles.

    Args:
        x: draws, at least four per chain, any real dtype; computed in float64.
        num_intervals: intervals of equal probability, from the smallest draw to the largest.

    Returns:
        Effective sample size of each, in draws; NaN for a coordinate with a non-finite draw.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4, on the efficiency of small intervals.
    """
    return _by_block(x, num_intervals, functools.partial(_of_intervals, edges=np.linspace(0.0, 1.0, num_intervals + 1)))


def _of_intervals(ordered: Ordered, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, "interval coordinate"]:
    pairs = itertools.pairwise(edges.tolist())
    return np.stack([effective_sample_size(interval_indicator(ordered, low, high)) for low, high in pairs])


def quantile_mcse(
    x: Real[np.ndarray, "chain draw coordinate"], probabilities: Sequence[float]
) -> Float[np.ndarray, "probability coordinate"]:
    """Return the Monte Carlo standard errors of quantiles, in the unit of the draws.

    Args:
        x: draws, at least four per chain, any real dtype; computed in float64.
        probabilities: of the quantiles.

    Returns:
        Half the distance between the order statistics at two quantiles of a beta distribution, whose parameters follow
        from the effective sample size of the quantile estimate; NaN for a coordinate with a non-finite draw.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 4, on Monte Carlo errors of quantiles.
    """

    def of_block(ordered: Ordered) -> Float[np.ndarray, "probability coordinate"]:
        sizes = zip(probabilities, _of_quantiles(ordered, probabilities), strict=True)
        return np.stack([_quantile_error(ordered, p, size) for p, size in sizes])

    return _by_block(x, len(probabilities), of_block)


def _quantile_error(
    ordered: Ordered, p: float, ess: Float[np.ndarray, " coordinate"]
) -> Float[np.ndarray, " coordinate"]:
    """Return the Monte Carlo standard errors of a quantile from the effective sample sizes of its estimate."""
    size, rows = ordered.all_values.shape[1], np.arange(len(ordered.all_values))
    low, high = (betaincinv(ess * p + 1, ess * (1 - p) + 1, side) * size - 1 for side in _ONE_SD)
    first = np.floor(np.maximum(low, 0)).astype(np.int64)
    last = np.ceil(np.minimum(high, size - 1)).astype(np.int64)
    return np.asarray((ordered.all_values[rows, last] - ordered.all_values[rows, first]) / 2)


def efficiency_columns(*, has_superchains: bool) -> tuple[str, ...]:
    """Return the names of the statistics of `efficiency_table`."""
    return EFFICIENCY_COLUMNS + (("nested_r_hat",) if has_superchains else ())


def efficiency_table(
    x: Real[np.ndarray, "chain draw coordinate"], superchains: Int[np.ndarray, " number"] | None = None
) -> dict[str, Float[np.ndarray, " coordinate"]]:
    """Return the additional statistics listed for every coordinate; each coordinate is sorted once.

    Args:
        x: draws, any real dtype; computed in float64.
        superchains: superchain number of each chain, for nested R-hat; None without superchains. The chains of a
            superchain start at the same point; all superchains are of equal size.

    Returns:
        `ess_quantile`, the smallest effective sample size over the quantiles `QUANTILES`, and `quantile`, the
        probability of that quantile; `ess_local`, the smallest over `NUM_INTERVALS` intervals of equal probability, and
        `interval`, the probability at the middle of that interval; `mcse_q5`, `mcse_q50` and `mcse_q95`, Monte Carlo
        standard errors of quantiles, in the unit of the draws; with superchains, `nested_r_hat`. NaN for a coordinate
        with a non-finite draw, and with fewer than four draws per chain.

    Raises:
        ValueError: superchains differ in size, there is only one, or there is not one number per chain.
    """
    names = efficiency_columns(has_superchains=superchains is not None)
    if x.shape[1] < _MIN_DRAWS:
        return {name: np.full(x.shape[2], np.nan) for name in names}
    edges, members = np.linspace(0.0, 1.0, NUM_INTERVALS + 1), None
    if superchains is not None:
        members = _members(superchains, len(x))

    def of_block(ordered: Ordered) -> Float[np.ndarray, "column coordinate"]:
        of_quantiles, local = _of_quantiles(ordered, QUANTILES), _of_intervals(ordered, edges)
        worst, thinnest = of_quantiles.argmin(axis=0), local.argmin(axis=0)
        errors = [_quantile_error(ordered, p, of_quantiles[QUANTILES.index(p)]) for p in _LISTED_QUANTILES]
        found = [of_quantiles.min(axis=0), np.array(QUANTILES)[worst], local.min(axis=0)]
        found += [(edges[thinnest] + edges[thinnest + 1]) / 2, *errors]
        if members is not None:
            found.append(_nested_of(ordered, members))
        return np.stack(found)

    return dict(zip(names, _by_block(x, len(names), of_block), strict=True))


def _members(superchains: Int[np.ndarray, " number"], num_chains: int) -> Int[np.ndarray, "superchain member"]:
    """Return the half chains of each superchain."""
    numbers, sizes = np.unique(superchains, return_counts=True)
    if len(superchains) != num_chains or len(numbers) < 2 or len(set(sizes.tolist())) != 1:
        found = f"{num_chains} chains, {len(numbers)} superchains of {', '.join(map(str, sizes))} of {len(superchains)} chains"
        raise ValueError(f"superchains must be two or more, of equal size, and have every chain: {found}")
    # Second halves follow all first halves.
    of_halves = np.concatenate([superchains, superchains])
    return np.stack([np.flatnonzero(of_halves == number) for number in numbers])


def _nested_of(ordered: Ordered, members: Int[np.ndarray, "superchain member"]) -> Float[np.ndarray, " coordinate"]:
    """Return the larger of rank-normalised and folded nested R-hat; NaN with a non-finite draw, or with all draws equal.

    Nested R-hat tells chains that are many but too short for R-hat from chains that disagree. Margossian et al. 2024,
    "Nested R-hat: assessing the convergence of Markov chain Monte Carlo when running many short chains",
    doi:10.1214/24-BA1453, equations 4 to 8.
    """
    bulk, folded = (_nested(z, members) for z in (rank_normalise(ordered), rank_normalise_folded(ordered)))
    return np.where(folded > bulk, folded, bulk)


def _nested(z: Halves, members: Int[np.ndarray, "superchain member"]) -> Float[np.ndarray, " coordinate"]:
    """Return nested R-hat of normal scores, given the half chains of each superchain."""
    means, variances = z.mean(axis=-1)[:, members], z.var(axis=-1, ddof=1)[:, members]
    within = (variances.mean(axis=-1) + means.var(axis=-1, ddof=1)).mean(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(1 + means.mean(axis=-1).var(axis=-1, ddof=1) / within)


def growing_ess(
    x: Real[np.ndarray, "chain draw coordinate"], num_draws: Sequence[int]
) -> tuple[Float[np.ndarray, "count coordinate"], Float[np.ndarray, "count coordinate"]]:
    """Return bulk and tail effective sample sizes of the first draws of all chains, for growing numbers of draws.

    Both should grow in proportion to the draws; a curve that levels off shows a mode or a tail that some chains find late.

    Args:
        x: draws, any real dtype; computed in float64.
        num_draws: numbers of draws per chain, each at least four.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, section 5, on the change of effective sample sizes with draws.
    """

    def bulk_and_tail(ordered: Ordered) -> Float[np.ndarray, "two coordinate"]:
        return np.stack(
            [effective_sample_size(rank_normalise(ordered)), _of_quantiles(ordered, (0.05, 0.95)).min(axis=0)]
        )

    found = np.stack([_by_block(x[:, :count], 2, bulk_and_tail) for count in num_draws])
    return found[:, 0], found[:, 1]


def _by_block(
    x: Real[np.ndarray, "chain draw coordinate"],
    num_rows: int,
    of_block: Callable[[Ordered], Float[np.ndarray, "row coordinate"]],
) -> Float[np.ndarray, "row coordinate"]:
    """Return statistics of the coordinates whose draws are all finite, in blocks of bounded memory; NaN for others."""
    found = np.full((num_rows, x.shape[2]), np.nan)
    usable = np.flatnonzero(np.isfinite(x).all(axis=(0, 1)))
    block = max(1, _BLOCK_DRAWS // (x.shape[0] * x.shape[1]))
    for rows in np.split(usable, range(block, len(usable), block)) if usable.size else []:
        draws = np.array(np.moveaxis(x[:, :, rows], -1, 0), dtype=np.float64, order="C")
        found[:, rows] = of_block(order_draws(draws))
    return found
