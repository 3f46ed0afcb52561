"""Summarise the last states of every contender."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Protocol, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from bayesmesh.reproduction.benchmarks.metropolis.target import MEAN, VARIANCE

__all__ = ["STATES", "WalkCase", "describe_states", "effective_sample_size", "warm_up"]

STATES = "BAYESMESH_STATES"
"""Environment variable of a contender: file for its last states, if they are to be saved."""

_WARM_STEPS = 1_000_000


class WalkCase(TypedDict):
    """A walk: its sizes, the scale of the proposal, and whether each chain's mean is kept."""

    chains: int
    samples: int
    scale: float
    keeps_means: bool


class _Walker(Protocol):
    case: WalkCase

    def run(self, repeat: int) -> Mapping[str, object]: ...


def describe_states(last: ArrayLike, means: ArrayLike | None = None) -> dict[str, object]:
    """Return mean and variance of the last states over chains, and the effective sample size if means are given.

    Args:
        last: the last state of each chain (chain,).
        means: the mean of each chain (chain,).
    """
    last = np.asarray(last, dtype=np.float64)
    if STATES in os.environ:
        np.save(os.environ[STATES], last)
    found: dict[str, object] = {"mean": float(last.mean()), "variance": float(last.var())}
    if means is not None:
        found["ess"] = effective_sample_size(np.asarray(means, dtype=np.float64))
    return found


def warm_up(contender: _Walker, case: WalkCase) -> None:
    """Run a contender once to warm up, unless a run is so long that warming up does not matter."""
    if case["chains"] * case["samples"] <= _WARM_STEPS:
        kept, contender.case = contender.case, case
        contender.run(0)
        contender.case = kept


def effective_sample_size(means: np.ndarray) -> float:
    """Return the number of independent draws with the same error of the means, summed over chains.

    The variance of the mean of n independent draws is VARIANCE / n. The target's mean is used instead of that of the chains,
    to detect a sampler that has not left its start.

    Args:
        means: the mean of each chain, float64 (chain,).

    >>> float(round(effective_sample_size(np.array([MEAN - 1.0, MEAN + 1.0])), 4))
    19.4032
    """
    return float(means.size * VARIANCE / np.mean((means - MEAN) ** 2))
