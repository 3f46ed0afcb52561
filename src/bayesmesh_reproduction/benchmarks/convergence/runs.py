"""Run a sampler until its draws have converged, and hold them to known moments.

Every sampler warms up, and then draws in rounds. After each round its draws so far are assessed, outside of the clock:
all numbers of all latents, by rank-normalised R-hat and bulk effective sample size (Vehtari et al. 2021,
doi:10.1214/20-BA1221).
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh_reproduction.benchmarks.convergence.posterior import Known

MOST_R_HAT, LEAST_ESS = 1.01, 400.0
"""Converged: the largest R-hat is below the first, and the smallest bulk effective sample size above the second."""

LOOKS = (125, 250, 500, 1000, 2000, 4000, 8000)
"""Numbers of draws per chain at which a sampler is assessed."""

FAMILY_ERROR = 1e-4
"""Probability that a correct sampler is called wrong, over all quantities of a target."""

MOST_SD_ERROR = 0.1
"""Relative error of a standard deviation beyond which a sampler is wrong, whatever its Monte Carlo error."""


class Round(NamedTuple):
    """Draws of a round.

    Attributes:
        draws: (chain, draw, quantity), constrained, on the host.
        gradients: evaluated by all trajectories, without those of chains that wait for others.
        seconds: time of the round if the sampler measures it, else None.
    """

    draws: np.ndarray
    gradients: float
    seconds: float | None = None


class Sampler(Protocol):
    """A sampler, compiled for a target."""

    def warm_up(self, seed: int) -> float:
        """Start and adapt; returns gradients, NaN if it does not say."""
        ...

    def draw(self, until: int) -> Round:
        """Continue to `until` draws of a chain; the round has those since the last."""
        ...


class Assessment(NamedTuple):
    """Draws so far: largest R-hat, smallest bulk ESS, and the largest error of known moments, in critical values.

    Attributes:
        error: below 1 for a correct sampler; NaN if no quantity is known.
    """

    r_hat: float
    ess: float
    error: float

    @property
    def has_converged(self) -> bool:
        """Whether both criteria are met; NaN meets none."""
        return self.r_hat < MOST_R_HAT and self.ess > LEAST_ESS


def critical_value(num_quantities: int) -> float:
    """Return the two-sided critical value of that many normal numbers, Bonferroni-corrected.

    >>> round(critical_value(1), 2)
    3.89
    """
    from scipy.stats import norm

    return float(norm.isf(FAMILY_ERROR / 2 / max(1, num_quantities)))


def assess(draws: np.ndarray, known: Known) -> Assessment:
    """Assess draws (chain, draw, quantity) against the known moments.

    A mean is compared by its Monte Carlo standard error and that of the reference, a standard deviation by its relative
    error, so that a sampler that misses a mode or a tail is detected.
    """
    table = convergence_table(np.asarray(draws, np.float64))
    r_hat, ess = float(np.max(table["r_hat"])), float(np.min(table["ess_bulk"]))
    if not len(known.index):
        return Assessment(r_hat, ess, math.nan)
    mean, sd, mcse = (table[k][known.index] for k in ("mean", "sd", "mcse_mean"))
    z = np.abs(mean - known.mean) / np.hypot(mcse, known.error) / critical_value(len(mean))
    # A standard deviation from n effective draws has a relative error of about (2 n)^-1/2, more with heavy tails.
    wide = np.abs(sd / known.sd - 1) / (MOST_SD_ERROR + 4 / math.sqrt(2 * max(ess, 1.0)))
    return Assessment(r_hat, ess, float(np.max(np.maximum(z, wide))))


def measure(sampler: Sampler, seed: int, known: Known, num_chains: int, limit_s: float, budget: int) -> dict[str, Any]:
    """Run a sampler until it has converged and has made its budget of draws, or until a limit.

    Args:
        sampler: compiled.
        seed: of its random numbers.
        known: moments of the target.
        num_chains: its chains.
        limit_s: seconds of warmup and draws after which no round begins.
        budget: draws of a chain.

    Returns:
        Facts for the table: seconds are those of warmup and draws, without compilation.
    """
    processor = time.process_time()
    gradients, seconds = _timed(lambda: sampler.warm_up(seed))
    processor = time.process_time() - processor
    facts: dict[str, Any] = {"warmup_s": seconds, "warmup_gradients": gradients}
    parts: list[np.ndarray] = []
    found = Assessment(math.nan, 0.0, math.nan)
    num_draws = 0
    for until in LOOKS:
        begin = time.process_time()
        made, took = _timed(functools.partial(sampler.draw, until))
        used = time.process_time() - begin
        num_draws = until
        # A sampler that times itself starts from scratch in every round.
        if made.seconds is not None:
            parts, seconds, processor, gradients = [], made.seconds, used, 0.0
        else:
            seconds, processor = seconds + took, processor + used
        parts.append(made.draws)
        gradients += made.gradients
        found = assess(np.concatenate(parts, axis=1), known)
        if found.has_converged and "converged_s" not in facts:
            facts |= {"converged_s": seconds, "converged_gradients": gradients, "converged_draws": until}
        if (until >= budget and found.has_converged) or seconds + took > limit_s:
            break
    return {
        **facts,
        "seconds": seconds,
        "total_s": seconds,
        "processor_s": processor,
        "draws": num_draws,
        "chains": num_chains,
        "gradients": gradients,
        **rates(found, seconds, gradients),
    }


def rates(found: Assessment, seconds: float, gradients: float) -> Mapping[str, Any]:
    """Return the assessment of all draws, and effective draws per second and per gradient; they count if it is right."""
    counts = found.has_converged and not found.error >= 1
    reason = "" if counts else "not converged" if not found.has_converged else "wrong"
    return {
        "min_ess_bulk": found.ess,
        "max_r_hat": found.r_hat,
        "error": found.error,
        "result": reason or ("right" if found.error < 1 else "no reference"),
        "ess_per_s": found.ess / seconds,
        "ess_per_gradient": found.ess / gradients,
    }


def _timed[T](work: Callable[[], T]) -> tuple[T, float]:
    begin = time.perf_counter()
    value = work()
    return value, time.perf_counter() - begin
