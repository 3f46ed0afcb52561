"""Score rows that were not used in sampling: the rows that a refit leaves out, under its draws, and held-out rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from bayesmesh.analyses._likelihood import RowLikelihood, held_out_blocks, relative_efficiency
from bayesmesh.analyses.base import Subject, unsuitable
from bayesmesh.data.shards import Shards
from bayesmesh.errors import StoreError
from bayesmesh.store.scores import RowScores, digest_outcomes


class RefitRows(NamedTuple):
    """The rows that one refit left out, in the order of the data.

    Attributes:
        experiment: the refit.
        row: (row,) int64, row numbers within the training rows of the whole experiment.
        elpd, mcse: (row,) log score, in nats, and its Monte Carlo standard error.
        outcome: (row, ...), as the model of the refit has it.
        sum_mcse: Monte Carlo standard error of the sum of `elpd`, whose rows share draws.
        joint: log predictive density of all rows together, in nats, and its Monte Carlo standard error.
        num_draws: of the refit.
        verdict: on its chains.
    """

    experiment: str
    row: np.ndarray
    elpd: np.ndarray
    mcse: np.ndarray
    outcome: np.ndarray
    sum_mcse: float
    joint: tuple[float, float]
    num_draws: int
    verdict: str


def score_refit(key: str, refit: Subject, block_bytes: int) -> RefitRows:
    """Return the scores of the rows that a refit left out; only one block of rows at all draws is in memory.

    Args:
        key: name of the analysis, for messages.
        refit: the experiment.
        block_bytes: limit on the log likelihoods of a block of rows.

    Raises:
        StoreError: the shards do not say which rows were left out.
    """
    model, spec, shards = refit.bound
    rows = left_out_rows(shards)
    likelihood = RowLikelihood(key, model, spec, refit.posterior, block_bytes)
    scored: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    joint, relative = np.zeros((2, refit.posterior.num_chains, refit.posterior.num_draws))
    for block in held_out_blocks(likelihood, shards):
        values = np.moveaxis(block.log_likelihood, -1, 0)
        joint += values.sum(axis=0)
        scored.append((*log_mean_density(values), block.outcome))
        relative += relative_densities(values, scored[-1][0])
    total, error = (float(each[0]) for each in log_mean_density(joint[None]))
    elpd, mcse, outcome = map(np.concatenate, zip(*scored, strict=True))
    sum_mcse = error_of_sum(relative)
    return RefitRows(
        refit.name, rows, elpd, mcse, outcome, sum_mcse, (total, error), likelihood.num_draws, refit.verdict
    )


def left_out_rows(shards: Shards) -> np.ndarray:
    """Return the numbers of the rows that a refit leaves out, within the training rows of the whole experiment.

    Raises:
        StoreError: the shards do not say which rows were left out.
    """
    rows = shards.left_out()
    if rows is None:
        raise StoreError(f"{shards.path}: does not say which rows were left out", "run the shard stage again")
    return rows


def score_held_out(likelihood: RowLikelihood, shards: Shards) -> RowScores | None:
    """Return the log scores of rows that were held out, or of the published test set; None without either.

    The Monte Carlo error of their sum includes that of the effects drawn for new groups, which no other score shares.
    """
    scored, relative = list[tuple[np.ndarray, np.ndarray]](), np.zeros(())
    for block in held_out_blocks(likelihood, shards):
        score = logsumexp(block.log_likelihood, axis=(0, 1)) - math.log(likelihood.num_draws)
        scored.append((score, block.outcome))
        relative = relative + relative_densities(np.moveaxis(block.log_likelihood, -1, 0), score)
    if not scored:
        return None
    elpd, outcomes = map(np.concatenate, zip(*scored, strict=True))
    about = digest_outcomes(outcomes), outcomes.dtype.kind in "iub", likelihood.num_draws
    cluster = Shards(shards.path).held_out_clusters()
    return RowScores(elpd, *about, cluster=cluster, sum_mcse=error_of_sum(relative))


def check_outcomes(key: str, model: object, rows: np.ndarray, found: np.ndarray, own: np.ndarray) -> None:
    """Check that a model has the same outcome with and without the rows that are left out.

    Args:
        key: name of the analysis.
        model: the model.
        rows: (row,) numbers of rows.
        found: (row, ...) their outcomes, as the refits have them.
        own: (row, ...) as the whole experiment has them.

    Raises:
        ConfigError: they differ, so that log densities would be in different units.
    """
    if np.array_equal(found, own):
        return
    at = int(np.argmin((found == own).reshape(len(own), -1).all(axis=1)))
    problem = (
        f"model {type(model).__name__} has outcome {found[at]} in training row {rows[at] + 1} where it is left out"
    )
    raise unsuitable(key, f"{problem}, and {own[at]} otherwise: its unit depends on the rows from which it is sampled")


def relative_densities(
    log_density: Float[np.ndarray, "row chain draw"], score: Float[np.ndarray, " row"]
) -> Float[np.ndarray, "chain draw"]:
    """Return the sum over rows of the density of each draw divided by the mean density; NaN without a score."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(log_density - score[:, None, None]).sum(axis=0))


def error_of_sum(relative: Float[np.ndarray, "chain draw"]) -> float:
    """Return the Monte Carlo standard error of a sum of logarithms of mean densities over the same draws (delta method).

    Args:
        relative: see `relative_densities`, of all rows.

    >>> draws = np.log([[[0.1, 0.3, 0.3, 0.1]]])
    >>> score, error = log_mean_density(draws)
    >>> round(float(error_of_sum(3 * relative_densities(draws, score)) / error[0]), 6)
    3.0
    """
    if not np.isfinite(relative).all():
        return math.inf
    with np.errstate(divide="ignore"):
        size = relative.size * relative_efficiency(np.log(relative)[None])[0]
    return float(relative.std() / np.sqrt(size))


def log_mean_density(
    log_density: Float[np.ndarray, "row chain draw"],
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, " row"]]:
    """Return the logarithm of the mean density over draws, and its Monte Carlo standard error (delta method).

    Args:
        log_density: of each row at each draw, float64, in nats.

    Returns:
        Both (row,). For a row with a NaN, or with minus infinity at all draws: minus infinity and infinity.

    >>> log_mean_density(np.log(np.array([[[0.1, 0.3]]])))[0].round(4)
    array([-1.6094])
    """
    flat = log_density.reshape(len(log_density), -1)
    is_usable = ~np.isnan(flat).any(axis=1) & (flat.max(axis=1) > -np.inf)
    found = np.full((2, len(flat)), np.inf) * np.array([[-1.0], [1.0]])
    if is_usable.any():
        some = flat[is_usable]
        score = logsumexp(some, axis=1) - math.log(some.shape[1])
        # The density of a draw divided by the mean density: at most the number of draws.
        relative = np.exp(some - score[:, None])
        size = some.shape[1] * relative_efficiency(log_density[is_usable])
        found[:, is_usable] = score, relative.std(axis=1) / np.sqrt(size)
    return found[0], found[1]
