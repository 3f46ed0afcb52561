"""Leave out every row in turn, by importance sampling, and score held-out rows with all draws."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from bayesmesh.analyses._density import LogDensity
from bayesmesh.analyses._likelihood import RowLikelihood, check_rows, efficiency_of, relative_efficiency
from bayesmesh.analyses._refit_scores import RefitRows, check_outcomes, score_held_out, score_refit
from bayesmesh.analyses.base import BoundModel, Subject
from bayesmesh.analyses.loo.moment_matching import MOST_COORDINATES, match_moments
from bayesmesh.analyses.loo.sums import summarise, write_sums
from bayesmesh.data.shards import Shards
from bayesmesh.diagnostics.psis import good_k, smooth_weights
from bayesmesh.store.posterior.reader import Posterior
from bayesmesh.store.scores import POINTWISE, RowScores, digest_outcomes, write_pointwise

KEY = "loo"

SMOOTHED_BYTES = 8 * 2**20
"""Limit on the log likelihoods smoothed at a time, in bytes."""


def leave_out_rows(
    bound: BoundModel,
    posterior: Posterior,
    block_bytes: int,
    files: Mapping[str, Path],
    most_matched: int = 0,
    refits: Sequence[Subject] = (),
) -> str:
    """Write the scores of all rows and their sums, and return the sums as text.

    Args:
        bound: model and data.
        posterior: the draws.
        block_bytes: limit on the log likelihoods of a block of rows; two blocks are in memory at a time.
        files: paths of the outputs.
        most_matched: largest number of rows that moment matching repairs.
        refits: experiments sampled without some rows; their scores of these rows replace those from importance
            sampling.

    Raises:
        ConfigError: single rows of this model cannot be left out, or the outcome of a row depends on the other rows.
    """
    jax.config.update("jax_enable_x64", True)
    model, spec, shards = bound
    check_rows(KEY, model, spec)
    likelihood = RowLikelihood(KEY, model, spec, posterior, block_bytes)
    exact = [score_refit(KEY, refit, block_bytes) for refit in refits]
    # Columns of statistics follow the order in which the model reads rows.
    column = np.argsort(shards.source_rows())
    known = column[np.concatenate([np.zeros(0, np.int64), *(each.row for each in exact)])]
    left_out, outcome, error, is_apart = _score_left_out(
        likelihood, shards, lambda found: _repair(bound, posterior, found, most_matched, known)
    )
    for each in exact:
        check_outcomes(KEY, model, each.row, each.outcome, outcome[each.row])
    left_out = _with_refits(left_out, exact) if exact else left_out
    assert left_out.mcse is not None
    # The score of a row without a good Pareto k may come from other draws.
    alone = float(np.linalg.norm(left_out.mcse[is_apart]))
    left_out = dataclasses.replace(left_out, sum_mcse=math.hypot(error, alone))
    held_out = score_held_out(likelihood, shards)
    write_pointwise(files[POINTWISE], left_out, held_out)
    shapes = (posterior.array("posterior", name).shape[2:] for name in posterior.latents)
    sums = summarise(left_out, held_out, sum(map(math.prod, shapes)))
    write_sums(files["loo.csv"], sums)
    high = f"{sums['num_high_k']:.0f} of {sums['num_rows']:.0f} rows with Pareto k above {sums['good_k']:.2f}"
    return f"elpd {sums['elpd']:.1f} ± {sums['elpd_se']:.1f}, {high}"


Repair = Callable[[Float[np.ndarray, "statistic row"]], Int[np.ndarray, " repaired"]]
"""Improve the statistics of some rows in place, and return the numbers of these rows."""


def _with_refits(scores: RowScores, refits: Sequence[RefitRows]) -> RowScores:
    """Replace scores by those of refits where there are any; Pareto k is then 0, because there are no weights."""
    assert scores.pareto_k is not None
    assert scores.effective_parameters is not None
    assert scores.mcse is not None
    elpd, k, effective, mcse = (
        each.copy() for each in (scores.elpd, scores.pareto_k, scores.effective_parameters, scores.mcse)
    )
    is_refit = np.zeros(len(elpd))
    for refit in refits:
        row = refit.row
        # If the likelihood of a row is non-finite at some draws, its score with all rows is unknown.
        is_known = np.isfinite(elpd[row]) & np.isfinite(refit.elpd)
        change = np.full(len(row), np.inf)
        change[is_known] = elpd[row][is_known] - refit.elpd[is_known]
        effective[row] += change
        elpd[row], mcse[row], k[row], is_refit[row] = refit.elpd, refit.mcse, 0, 1
    failed = tuple(refit.experiment for refit in refits if refit.verdict == "fail")
    return dataclasses.replace(
        scores, elpd=elpd, pareto_k=k, effective_parameters=effective, mcse=mcse, is_refit=is_refit, failed=failed
    )


def _score_left_out(
    likelihood: RowLikelihood, shards: Shards, repair: Repair
) -> tuple[RowScores, np.ndarray, float, np.ndarray]:
    """Return the scores and the outcomes of all rows, in the order of the data, and how well their sum is known.

    The last two are the Monte Carlo error of the sum over the rows with a good Pareto k, which share draws, in nats, and
    whether a row is not among them.
    """
    parts, outcomes, influence = [], [], None
    step = max(1, SMOOTHED_BYTES // (8 * likelihood.num_draws))
    blocks = likelihood.blocks(shards.read_rows, shards.num_rows)
    # As many threads as the job has cores, for which JAX has been configured: while one evaluates the next block, others smooth this one.
    with ThreadPoolExecutor(max(2, len(jax.devices("cpu")))) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            values = np.moveaxis(block.log_likelihood, -1, 0)
            below = None if block.is_below is None else np.moveaxis(block.is_below, -1, 0)
            chosen = [slice(start, start + step) for start in range(0, len(values), step)]
            of_rows = [values[each] for each in chosen]
            for statistics, own in pool.map(
                leave_one_out, of_rows, [None if below is None else below[each] for each in chosen]
            ):
                parts.append(statistics)
                influence = own if influence is None else influence + own
            outcomes.append(block.outcome)
    order = np.argsort(shards.source_rows())
    outcome = np.concatenate(outcomes)[order]
    statistics = np.concatenate(parts, axis=1)
    is_apart = ~(statistics[1] <= good_k(likelihood.num_draws))
    matched = np.zeros(statistics.shape[1])
    matched[repair(statistics)] = 1
    elpd, k, effective, mcse, pit = statistics[:, order]
    is_ordered = bool(np.isfinite(pit).any())
    about = (digest_outcomes(outcome), outcome.dtype.kind in "iub", likelihood.num_draws)
    scores = RowScores(elpd, *about, k, effective, mcse, pit if is_ordered else None, matched[order])
    return scores, outcome, error_of_influence(influence), is_apart[order]


def error_of_influence(influence: Float[np.ndarray, "chain draw"] | None) -> float:
    """Return the Monte Carlo standard error of a sum from the influence of each draw on it; 0 without rows."""
    if influence is None:
        return 0.0
    return float(np.sqrt(np.square(influence).sum() / efficiency_of(influence[None])[0]))


def _repair(
    bound: BoundModel,
    posterior: Posterior,
    statistics: Float[np.ndarray, "statistic row"],
    most: int,
    known: Int[np.ndarray, " known"],
) -> Int[np.ndarray, " repaired"]:
    """Match moments for the rows with the highest k, except known ones; see `leave_one_out` for the statistics."""
    k = statistics[1]
    limit = good_k(posterior.num_chains * posterior.num_draws)
    # Rows with a non-finite log likelihood cannot be repaired, and must not use up the limit.
    high = np.setdiff1d(np.flatnonzero((k > limit) & np.isfinite(statistics[0])), known)
    chosen = high[np.argsort(-k[high], kind="stable")][:most]
    density = LogDensity(bound) if len(chosen) else None
    num_draws = posterior.num_chains * posterior.num_draws
    if density is None or density.num_coordinates > MOST_COORDINATES or density.draws_in_memory(num_draws) < num_draws:
        return chosen[:0]
    positions = density.positions(posterior, num_draws)
    flat = positions.reshape(-1, density.num_coordinates)
    if not np.isfinite(flat).all():
        return chosen[:0]

    def log_density(points: np.ndarray) -> np.ndarray:
        return density.log_prior(points) + density.log_likelihood(points)

    repaired = []
    for row in chosen.tolist():
        own = functools.partial(density.log_likelihood_of, row=row)
        r_eff = float(relative_efficiency(own(flat).reshape(1, *positions.shape[:2]))[0])
        if (found := match_moments(flat, log_density, own, r_eff, limit)) is not None:
            with_all = statistics[0, row] + statistics[2, row]
            statistics[:4, row] = found.elpd, found.pareto_k, with_all - found.elpd, found.mcse
            if np.isfinite(statistics[4, row]):
                statistics[4, row] = found.weights @ density.is_below(found.positions, row)
            repaired.append(row)
    return np.array(repaired, np.int64)


def leave_one_out(
    log_likelihood: Float[np.ndarray, "row chain draw"],
    is_below: Float[np.ndarray, "row chain draw"] | None = None,
) -> tuple[Float[np.ndarray, "statistic row"], Float[np.ndarray, "chain draw"]]:
    """Return statistics of each row, and the influence of each draw on the sum of elpd.

    Args:
        log_likelihood: of each row at each draw, float64, in nats.
        is_below: see `RowBlock`; without it, PIT is NaN.

    Returns:
        elpd, Pareto k, effective number of parameters, Monte Carlo error of elpd, and PIT, (5, row). A row with a non-finite log
        likelihood has an elpd of minus infinity, infinite k and no PIT. The influence is that of the rows with a good Pareto k: rows
        share draws, so the error of their sum does not follow from the errors of single rows.

    Reference:
        Vehtari, Gelman, Gabry 2017, doi:10.1007/s11222-016-9696-4; the Monte Carlo error is that of the self-normalised
        estimate, divided by the square root of the relative efficiency.
    """
    influence = np.zeros(log_likelihood.shape[1:])
    found = np.stack([np.full(len(log_likelihood), value) for value in (-np.inf, np.inf, np.inf, np.inf, np.nan)])
    is_finite = np.isfinite(log_likelihood).all(axis=(1, 2))
    if not is_finite.any():
        return found, influence
    finite = log_likelihood[is_finite]
    largest, flat = finite.max(axis=(1, 2)), finite.reshape(len(finite), -1)
    likelihood = np.exp(finite - largest[:, None, None])
    r_eff = efficiency_of(likelihood)
    log_weights, k = smooth_weights(-flat, r_eff)
    elpd = logsumexp(log_weights + flat, axis=1)
    with_all = largest + np.log(likelihood.mean(axis=(1, 2)))
    weights = np.exp(log_weights)
    spread = weights * np.expm1(np.clip(flat - elpd[:, None], None, 300))
    mcse = np.sqrt(np.square(spread).sum(axis=1) / r_eff)
    found[:4, is_finite] = elpd, k, with_all - elpd, mcse
    influence += spread[k <= good_k(flat.shape[1])].sum(axis=0).reshape(influence.shape)
    if is_below is not None:
        found[4, is_finite] = np.einsum("rd,rd->r", weights, is_below[is_finite].reshape(weights.shape))
    return found, influence
