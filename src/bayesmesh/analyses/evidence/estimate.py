"""Estimate the evidence of one experiment by all methods that its draws allow."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import numpy as np
import zarr
from jaxtyping import Float
from scipy.special import logsumexp

from bayesmesh.analyses._density import LogDensity
from bayesmesh.analyses._draw_blocks import training_outcomes
from bayesmesh.analyses.base import BoundModel, unsuitable
from bayesmesh.analyses.evidence.bridge_sampling import MIN_DRAWS, bridge, join_chains
from bayesmesh.analyses.evidence.table import Estimate, write_evidence
from bayesmesh.analyses.options import EvidenceOptions as Options
from bayesmesh.models.base import Model
from bayesmesh.store.arrays import read_part
from bayesmesh.store.posterior.reader import Posterior
from bayesmesh.store.scores import digest_outcomes

KEY = "evidence"

MOST_COORDINATES = 4096
"""Of a normal with all correlations."""

FEWEST_PRIOR_DRAWS = 20
"""Fewest effective draws of the prior from which the evidence is estimated."""


def check_evidence(bound: BoundModel) -> None:
    """Check that the evidence exists, and that a normal can be fitted.

    Raises:
        ConfigError: the integral of the prior is not known, or there are too many coordinates.
    """
    name = type(bound.model).__name__
    if not bound.model.has_proper_prior:
        raise unsuitable(
            KEY, f"the prior of model {name} is flat, or has a potential or a test point: its integral is not known"
        )
    number = LogDensity(bound).num_coordinates
    if number > MOST_COORDINATES:
        problem = (
            f"model {name} has {number:,} coordinates; bridge sampling fits a normal to at most {MOST_COORDINATES:,}"
        )
        raise unsuitable(KEY, problem)


def estimate_evidence(bound: BoundModel, posterior: Posterior, options: Options, path: Path) -> str:
    """Write the estimates, and return them as text.

    Args:
        bound: model and data.
        posterior: the draws.
        options: settings.
        path: of the table.

    Raises:
        ConfigError: see `check_evidence`.
    """
    jax.config.update("jax_enable_x64", True)
    check_evidence(bound)
    density = LogDensity(bound)
    found = [_bridged(density, posterior, options), tempered_evidence(posterior), _from_prior(density, options)]
    digest = outcome_digest(bound)
    estimates = [each._replace(digest=digest) for each in found if each is not None]
    write_evidence(path, estimates)
    return "; ".join(
        f"{each.method} {each.log_evidence:.2f} ± {each.error:.2f}"
        if each.is_usable
        else f"{each.method}: {each.problem}"
        for each in estimates
    )


def _bridged(density: LogDensity, posterior: Posterior, options: Options) -> Estimate:
    positions = density.positions(posterior, density.draws_in_memory(options.draws))
    # A draw is left out of all chains at once, so that chains stay equally long.
    is_finite = np.isfinite(positions).all(axis=(0, 2))
    kept = join_chains(positions[:, is_finite])
    num_left_out = int((~is_finite).sum()) * positions.shape[0]
    if kept.shape[1] < 2 * MIN_DRAWS:
        problem = f"fewer than {2 * MIN_DRAWS} draws of a chain, or of chains joined, inside the support"
        return Estimate(
            "bridge", math.nan, math.nan, num_draws=kept[..., 0].size, num_left_out=num_left_out, problem=problem
        )

    def log_density(points: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return density.log_prior(points) + density.log_likelihood(points)

    found = bridge(kept, log_density, options.seed)
    problem = "" if math.isfinite(found[0]) else "its iteration has not converged, or its result is not finite"
    return Estimate("bridge", *found, kept[..., 0].size, num_left_out, "", problem)


def _from_prior(density: LogDensity, options: Options) -> Estimate | None:
    """Return the mean likelihood at draws of the prior, which do not depend on the modes that chains met; None if too few count."""
    positions = density.prior_positions(density.draws_in_memory(options.draws), options.seed)
    log_likelihood = density.log_likelihood(positions)
    log_likelihood[~np.isfinite(log_likelihood)] = -np.inf
    most = log_likelihood.max()
    weight = np.exp(log_likelihood - most) if math.isfinite(most) else np.zeros(len(positions))
    mean, num = float(weight.mean()), len(weight)
    if weight.sum() ** 2 <= FEWEST_PRIOR_DRAWS * (weight**2).sum():
        return None
    error = float(weight.std(ddof=1)) / mean / math.sqrt(num)
    return Estimate("prior", math.log(mean) + float(most), error, error, num_draws=num)


def outcome_digest(bound: BoundModel) -> str:
    """Return the digest of all training outcomes in the order of the source; empty for a model without outcomes."""
    if not bound.model.has_predictions or type(bound.model).outcome is Model.outcome:
        return ""
    return digest_outcomes(training_outcomes(KEY, bound))


STATISTIC = "log_evidence"
"""Statistic of a kernel that estimates the evidence."""

MIN_GROUPS = 4
"""Fewest chain groups from whose spread the error is estimated."""


def tempered_evidence(posterior: Posterior) -> Estimate | None:
    """Return the estimate of kernels that make one, None for others."""
    found = posterior.find(f"sample_stats/{STATISTIC}")
    if not isinstance(found, zarr.Array):
        return None
    # One number for all chains of a group, constant after warmup. A shard holds all chains of one group.
    last = read_part(found, slice(None), slice(found.shape[1] - 1, None))
    of_group = found.shards[0] if found.shards is not None else found.shape[0]
    return combine_groups(np.asarray(last[::of_group, 0], np.float64), posterior.num_chains)


def combine_groups(log_evidence: Float[np.ndarray, " group"], num_chains: int) -> Estimate:
    """Return the log of the mean evidence over independent groups of chains, with its standard error.

    >>> found = combine_groups(np.log([1.0, 2.0, 3.0, 2.0]), 64)
    >>> round(found.log_evidence, 4), round(found.error, 4)
    (0.6931, 0.2041)
    """
    num = len(log_evidence)
    log_mean = float(logsumexp(log_evidence)) - math.log(num)
    if not math.isfinite(log_mean):
        return Estimate("tempered", math.nan, math.nan, problem="the estimate of a chain group is not finite")
    if num < MIN_GROUPS:
        groups = "chain group is" if num == 1 else "chain groups are"
        problem = f"{num} {groups} too few to tell the error: set sampling.chain_groups to {MIN_GROUPS} or more"
        return Estimate("tempered", log_mean, math.nan, num_parts=num, num_draws=num_chains, problem=problem)
    error = float(np.exp(log_evidence - log_mean).std(ddof=1)) / math.sqrt(num)
    return Estimate("tempered", log_mean, error, error_between=error, num_parts=num, num_draws=num_chains)
