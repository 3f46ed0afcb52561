"""Summarise draws with one function for all contenders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from arviz_stats.base import array_stats

__all__ = ["LATENTS", "describe"]

LATENTS = ("signal", "noise", "initial", "transition")


def _coordinates(draws: Mapping[str, np.ndarray]) -> Iterator[np.ndarray]:
    """Return every coordinate of every latent, as (chain, draw)."""
    for name in LATENTS:
        values = np.asarray(draws[name], np.float64)
        flat = values.reshape(*values.shape[:2], -1)
        yield from (np.ascontiguousarray(flat[..., i]) for i in range(flat.shape[2]))


def describe(draws: Mapping[str, np.ndarray], seconds: float) -> dict[str, object]:
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
