"""Compute convergence statistics of many coordinates at once, in blocks of bounded memory, and the chance of an R-hat.

The statistics equal those of ``arviz_stats`` 1.3 up to rounding, without its loop over coordinates.

R-hat compares the means of half chains. If half chains agree, their means differ only by Monte Carlo error, whose size
follows from the autocorrelation within half chains. R-hat then exceeds 1 by about the number of half chains divided by
twice the effective sample size, for draws that are far from independent. A limit that is the same for all sample sizes,
and applies to the largest of many values, is therefore sometimes missed by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.special import chdtrc, ndtri

from bayesmesh.diagnostics.autocovariance import Centred, centre, effective_size
from bayesmesh.diagnostics.ranks import order_draws, quantile_of, rank_normalise, rank_normalise_folded, tail_indicator

BLOCK_BYTES = 32 * 2**20
"""Limit on the working memory of a thread, in bytes; exceeded only if a single coordinate needs more. Larger blocks are not faster."""

OF_CHAINS = ("mcse_mean", "r_hat", "ess_bulk", "ess_tail")
"""Statistics that depend on the order of the draws."""

STATISTICS = ("mean", "sd", "q5", "q95", *OF_CHAINS)
"""Keys of a convergence table, in the order of the columns of summary.csv."""

_PRIMER_BYTES = 31 * 2**20
_BYTES_PER_DRAW = 256  # float64 draws, order, ranks, five series with their deviations, and padded spectra of four
_TAIL = (0.05, 0.95)
_NUM_SIZES = 4  # scores, both tails and draws
_MIN_DRAWS = 4
_MIN_CHAINS = 2


def convergence_table(x: Real[np.ndarray, "..."]) -> dict[str, Float[np.ndarray, " coordinate"]]:
    """Return mean, spread, quantiles, Monte Carlo error, R-hat and effective sample sizes of every coordinate.

    Args:
        x: draws, shape (chain, draw, coordinate), any real dtype; computed in float64.

    Returns:
        One float64 array per statistic: `mean`; `sd`, with ddof=1; `q5` and `q95`, the 5% and 95% quantiles, linear
        between order statistics; `mcse_mean`, the Monte
        Carlo standard error of the mean, in the variable's unit; `r_hat`, the larger of rank-normalised and folded
        split R-hat; `ess_bulk` and `ess_tail`, in draws.
        NaN: all statistics of a coordinate with a non-finite draw; R-hat of a constant coordinate or of a single chain;
        everything except mean, sd and quantiles with fewer than 4 draws per chain.

    Raises:
        ValueError: `x` does not have three axes, or has no draws.

    Reference:
        Vehtari, Gelman, Simpson, Carpenter, Bürkner 2021, "Rank-normalization, folding, and localization: an improved
        R-hat", doi:10.1214/20-BA1221.

    >>> table = convergence_table(np.array([[[1.0], [2.0], [3.0], [2.0]], [[2.0], [1.0], [2.0], [3.0]]]))
    >>> table["mean"], table["sd"].round(3), table["r_hat"].round(3)
    (array([2.]), array([0.756]), array([1.08]))
    """
    x = np.asarray(x)
    if x.ndim != 3 or 0 in x.shape[:2]:
        raise ValueError(f"draws must have shape (chain, draw, coordinate) with at least one draw, not {x.shape}")
    keep_freed_memory()
    return join_tables([part_table(x[:, :, part]) for part in coordinate_parts(x.shape)])


def coordinate_parts(shape: Sequence[int]) -> list[slice]:
    """Return slices of the coordinates of draws (chain, draw, coordinate), small enough for a thread to take one at a time.

    >>> coordinate_parts((4, 1000, 40))
    [slice(0, 32, None), slice(32, 40, None)]
    """
    num_chains, num_draws, num_coordinates = shape
    block = max(1, BLOCK_BYTES // (num_chains * num_draws * _BYTES_PER_DRAW))
    starts = range(0, num_coordinates, block)
    return [slice(start, min(start + block, num_coordinates)) for start in starts] or [slice(0, 0)]


def part_table(x: Real[np.ndarray, "chain draw coordinate"]) -> dict[str, Float[np.ndarray, " coordinate"]]:
    """Return the statistics of a part of the coordinates, all at once; see `convergence_table`."""
    table = {name: np.full(x.shape[2], np.nan) for name in STATISTICS}
    # Copied to (coordinate, chain, draw): sums and sorts then run along contiguous memory.
    draws = np.array(np.moveaxis(x, -1, 0), dtype=np.float64, order="C")
    is_finite = np.isfinite(draws).all(axis=(1, 2))
    if not is_finite.all():
        draws = draws[is_finite]
    if not draws.size:
        return table
    # Squares of draws near the largest float overflow; the statistic is then not finite and misses its gate.
    with np.errstate(over="ignore", invalid="ignore"):
        for name, values in _finite_block(draws).items():
            table[name][is_finite] = values
    return table


def join_tables(
    tables: Sequence[Mapping[str, Float[np.ndarray, " _"]]],
) -> dict[str, Float[np.ndarray, " coordinate"]]:
    """Join the tables of consecutive parts, at least one, into the table of all coordinates."""
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _scale_reduction(centred: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return R-hat of half chains; NaN if all draws are equal, infinite if they are equal only within each half chain.

    Reference:
        Vehtari et al. 2021, doi:10.1214/20-BA1221, equations 1 to 4.
    """
    num_draws = centred.deviations.shape[-1]
    between = num_draws * centred.means.var(axis=-1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt((between / centred.within + num_draws - 1) / num_draws)


def keep_freed_memory() -> None:
    """Make glibc reuse the temporaries of one block for the next one.

    Until it has freed one large array, its allocator returns every freed array to the system; page faults then took
    half of the time of a table. With other allocators this has no effect.
    """
    primer = np.empty(_PRIMER_BYTES, dtype=np.uint8)
    del primer


def _finite_block(x: Float[np.ndarray, "coordinate chain draw"]) -> dict[str, Float[np.ndarray, " coordinate"]]:
    """Return the table of a block whose draws are all finite."""
    num_coordinates, num_chains, num_draws = x.shape
    flat = x.reshape(num_coordinates, -1)
    is_constant = (flat == flat[:, :1]).all(axis=1)
    # Rounding would give a constant coordinate an sd of 1e-17, and a plausible ratio of Monte Carlo error to sd.
    table = {"mean": np.where(is_constant, flat[:, 0], flat.mean(axis=1))}
    if flat.shape[1] > 1:
        table["sd"] = np.where(is_constant, 0.0, flat.std(axis=1, ddof=1))
    ordered = order_draws(x)
    table["q5"], table["q95"] = (quantile_of(ordered, probability) for probability in _TAIL)
    if num_draws < _MIN_DRAWS:
        return table
    # Series that need an effective sample size, then the folded scores: one call, because each costs as much as many rows.
    series = np.empty((_NUM_SIZES + 1 if num_chains >= _MIN_CHAINS else _NUM_SIZES, *ordered.halves.shape))
    rank_normalise(ordered, out=series[0])
    for row, probability in enumerate(_TAIL, start=1):
        tail_indicator(ordered, probability, out=series[row])
    series[_NUM_SIZES - 1] = ordered.halves
    if num_chains >= _MIN_CHAINS:
        rank_normalise_folded(ordered, out=series[_NUM_SIZES])
    centred = centre(series.reshape(-1, *ordered.halves.shape[1:]))
    sized = Centred(*(part[: _NUM_SIZES * num_coordinates] for part in centred))
    table["ess_bulk"], low, high, of_mean = effective_size(sized).reshape(_NUM_SIZES, num_coordinates)
    table["ess_tail"] = np.minimum(low, high)
    table["mcse_mean"] = table["sd"] / np.sqrt(of_mean)
    if num_chains >= _MIN_CHAINS:
        r_hats = _scale_reduction(centred).reshape(-1, num_coordinates)
        bulk, folded = r_hats[0], r_hats[_NUM_SIZES]
        # Two-valued draws may all be equally far from their median; folding is then uninformative, and only the bulk counts.
        table["r_hat"] = np.where(folded > bulk, folded, bulk)
    return table


def within(values: Float[np.ndarray, "*values"], target: float, *, is_upper: bool) -> Bool[np.ndarray, "*values"]:
    """Return where values meet a target; NaN and infinity never do.

    >>> within(np.array([1.0, np.nan, 2.0, np.inf]), 1.5, is_upper=False)
    array([False, False,  True, False])
    """
    return np.isfinite(values) & (values <= target if is_upper else values >= target)


def worst_position(values: Float[np.ndarray, " n"], *, is_upper: bool) -> int | None:
    """Return the position of the first non-finite value, or else of the worst value; None if there are no values.

    >>> worst_position(np.array([1.0, 3.0, 2.0]), is_upper=True), worst_position(np.array([1.0, np.inf]), is_upper=False)
    (1, 1)
    """
    if values.size == 0:
        return None
    is_odd = ~np.isfinite(values)
    return int(is_odd.argmax() if is_odd.any() else values.argmax() if is_upper else values.argmin())


LEVEL = 0.001
"""Probability, if all chains agree, that any value of a table is said to be beyond chance."""

_ROUNDS = 4
"""Successive estimates of the variance between means; each has less than half the error of the previous one, unless
chains drift."""

_BLOCK_DRAWS = 2**17
"""Number of draws ranked at a time."""


def chance_of_r_hat(x: Real[np.ndarray, "chain draw coordinate"]) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of an R-hat at least as large as that of the draws, if all half chains agree.

    Args:
        x: draws, any real dtype; computed in float64.

    Returns:
        Probability for each coordinate; NaN where a draw is not finite or all are equal, and with fewer than four draws
        per chain. Means of half chains are
        treated as normal. Their variance follows from the effective sample size of draws centred within their own half
        chain, so disagreement between chains does not inflate it. R-hat is the larger of two values, so the smaller of
        their probabilities is doubled.

    Reference:
        Gelman and Rubin 1992, doi:10.1214/ss/1177011136, for the two variances; Vats and Knudson 2021, "Revisiting the
        Gelman-Rubin diagnostic", doi:10.1214/20-STS812, equation 6, for R-hat as a function of the effective sample size.

    >>> x = np.random.default_rng(0).normal(size=(4, 100, 1))
    >>> bool(chance_of_r_hat(x)[0] > 0.1), bool(chance_of_r_hat(x + np.arange(4)[:, None, None])[0] < 1e-6)
    (True, True)
    """
    chances = np.full(x.shape[2], np.nan)
    if x.shape[1] < 4:
        return chances
    usable = np.flatnonzero(np.isfinite(x).all(axis=(0, 1)) & (x != x[:1, :1]).any(axis=(0, 1)))
    block = max(1, _BLOCK_DRAWS // (x.shape[0] * x.shape[1]))
    for rows in np.split(usable, range(block, len(usable), block)):
        ordered = order_draws(np.array(np.moveaxis(x[:, :, rows], -1, 0), dtype=np.float64, order="C"))
        bulk, folded = (_chance(centre(z)) for z in (rank_normalise(ordered), rank_normalise_folded(ordered)))
        # Two-valued draws may all be equally far from their median; the folded scores then give NaN.
        chances[rows] = np.minimum(1.0, 2 * np.fmin(bulk, folded))
    return chances


def _chance(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the probability of the variance between the means of half chains; NaN for draws that do not vary."""
    num_halves = halves.means.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = halves.means.var(axis=1, ddof=1) / _variance_of_agreeing_means(halves)
    return np.asarray(chdtrc(num_halves - 1, (num_halves - 1) * ratio))


def _variance_of_agreeing_means(halves: Centred) -> Float[np.ndarray, " coordinate"]:
    """Return the variance between the means of half chains that agree.

    Centring a half chain about its own mean removes autocovariance: every lag is too low by the variance between means.
    So means are added back, as far apart as the previous estimate says, and the next estimate is made from these draws.
    The rounds are few, so that drifting draws, for which the estimates grow without bound, are not excused.
    """
    _, num_halves, num_draws = halves.deviations.shape
    spread = ndtri((np.arange(num_halves) + 0.5) / num_halves)
    spread /= spread.std(ddof=1)
    variance = np.zeros(len(halves.means))
    for _ in range(_ROUNDS):
        agreeing = centre(halves.deviations + np.sqrt(variance)[:, None, None] * spread[:, None])
        total = agreeing.within * (num_draws - 1) / num_draws + variance
        variance = total * num_halves / effective_size(agreeing)
    return variance
