"""The base of all samplers: data, budget, and one summary of draws."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from arviz_stats.base import array_stats

from bayesmesh_reproduction.benchmarks.worker import timed

LATENTS = ("signal", "noise", "initial", "transition")

Draws = Mapping[str, np.ndarray]
"""Latent -> (chain, draw, ...), constrained, on the host."""


class Sampler:
    """A contender: `prepare` compiles, `run` times warmup and draws.

    Args:
        data: file with the emissions (process, time), float64.
        chains, warmup, draws: the budget.
        variant: which of several programs of a package, such as its backend.
    """

    platform = "cpu"

    def __init__(self, data: str, chains: int, warmup: int, draws: int, variant: str = "") -> None:
        self.emissions = np.load(data, allow_pickle=False)
        self.chains, self.warmup, self.num_draws, self.variant = chains, warmup, draws, variant

    def compile(self) -> None:
        """Build the model and compile what it needs."""
        raise NotImplementedError

    def sample(self, seed: int) -> Draws:
        """Warm up and sample."""
        raise NotImplementedError

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Compile, and time it."""
        _, seconds = timed(self.compile)
        return {"compile_s": seconds, "warmup": self.warmup, "platform": self.platform}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample, and summarise the draws."""
        return describe(*timed(lambda: self.sample(1 + repeat)))


def _coordinates(draws: Draws) -> np.ndarray:
    """Return every coordinate of every latent, as (coordinate, chain, draw)."""
    values = (np.asarray(draws[name], np.float64) for name in LATENTS)
    flat = np.concatenate([each.reshape(*each.shape[:2], -1) for each in values], axis=2)
    return np.ascontiguousarray(np.moveaxis(flat, 2, 0))


def describe(draws: Draws, seconds: float) -> dict[str, object]:
    """Return the smallest bulk effective sample size over all coordinates, its rate, and posterior means.

    Args:
        draws: latent -> (chain, draw, ...), constrained.
        seconds: warmup and draws, without compilation.
    """
    coordinates = _coordinates(draws)
    smallest = float(array_stats.ess(coordinates, method="bulk").min())
    _, num_chains, num_draws = coordinates.shape
    return {
        "seconds": seconds,
        "chains": num_chains,
        "draws": num_draws,
        "min_ess_bulk": smallest,
        "ess_per_s": smallest / seconds,
        "max_r_hat": float(array_stats.rhat(coordinates).max()),
        "mean_signal": float(coordinates[0].mean()),
        "mean_noise": float(coordinates[1].mean()),
    }
