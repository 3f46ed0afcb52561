"""The base of all samplers: data, budget, and one summary of draws."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
from arviz_stats.base import array_stats

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
        begin = time.perf_counter()
        self.compile()
        return {"compile_s": time.perf_counter() - begin, "warmup": self.warmup, "platform": self.platform}

    def run(self, repeat: int) -> dict[str, object]:
        """Sample, and summarise the draws."""
        begin = time.perf_counter()
        draws = self.sample(1 + repeat)
        return describe(draws, time.perf_counter() - begin)


def _coordinates(draws: Draws) -> Iterator[np.ndarray]:
    """Return every coordinate of every latent, as (chain, draw)."""
    for name in LATENTS:
        values = np.asarray(draws[name], np.float64)
        flat = values.reshape(*values.shape[:2], -1)
        yield from (np.ascontiguousarray(flat[..., i]) for i in range(flat.shape[2]))


def describe(draws: Draws, seconds: float) -> dict[str, object]:
    """Return the smallest bulk effective sample size over all coordinates, its rate, and posterior means.

    Args:
        draws: latent -> (chain, draw, ...), constrained.
        seconds: warmup and draws, without compilation.
    """
    coordinates = list(_coordinates(draws))
    smallest = min(float(array_stats.ess(c, method="bulk")) for c in coordinates)
    num_chains, num_draws = coordinates[0].shape
    return {
        "seconds": seconds,
        "chains": num_chains,
        "draws": num_draws,
        "min_ess_bulk": smallest,
        "ess_per_s": smallest / seconds,
        "max_r_hat": max(float(array_stats.rhat(c)) for c in coordinates),
        "mean_signal": float(coordinates[0].mean()),
        "mean_noise": float(coordinates[1].mean()),
    }
