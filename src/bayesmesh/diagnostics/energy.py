"""Compute statistics of Hamiltonian trajectories: fraction of missing information, share of divergences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Real


def bfmi(energy: Real[np.ndarray, "..."]) -> Float[np.ndarray, " chain"]:
    """Return the Bayesian fraction of missing information of each chain.

    Low values mean that momentum resampling explores the energies slowly: heavy tails, or a poorly adapted mass matrix.

    Args:
        energy: Hamiltonian at each draw, in nats, shape (chain, draw), any real dtype; computed in float64.

    Returns:
        ``sum((E_n - E_(n-1))**2) / sum((E_n - mean(E))**2)``, float64. NaN if an energy is not
        finite, all are equal, or there are fewer than two draws.

    Raises:
        ValueError: `energy` does not have two axes.

    Reference:
        Betancourt 2016, "Diagnosing suboptimal cotangent disintegrations in Hamiltonian Monte Carlo",
        arXiv:1604.00695.

    >>> bfmi(np.array([[1.0, 2.0, 3.0]]))
    array([1.])
    """
    energy = np.asarray(energy, dtype=np.float64)
    if energy.ndim != 2:
        raise ValueError(f"energies must have shape (chain, draw), not {energy.shape}")
    num_chains, num_draws = energy.shape
    fraction = np.full(num_chains, np.nan)
    if num_draws < 2:
        return fraction
    is_constant = (energy == energy[:, :1]).all(axis=1)
    usable = np.isfinite(energy).all(axis=1) & ~is_constant
    kept = energy[usable]
    centred = kept - kept.mean(axis=1, keepdims=True)
    fraction[usable] = np.square(np.diff(kept, axis=1)).sum(axis=1) / np.square(centred).sum(axis=1)
    return fraction


def divergence_share(diverging: Bool[np.ndarray, "chain draw"] | Real[np.ndarray, "chain draw"]) -> float:
    """Return the share of trajectories that diverged.

    Args:
        diverging: one flag per draw, bool or 0 and 1; or, if a draw takes several trajectories, the divergent share of
            them.

    Returns:
        Share between 0 and 1; NaN without draws, or if a value is NaN.

    Reference:
        Betancourt 2017, "A conceptual introduction to Hamiltonian Monte Carlo", arXiv:1701.02434.

    >>> divergence_share(np.array([[False, True, False, False]]))
    0.25
    """
    diverging = np.asarray(diverging, dtype=np.float64)
    return float(diverging.mean()) if diverging.size else float("nan")


class Energies(NamedTuple):
    """Energies and divergences of a run.

    Attributes:
        bfmi: see `bfmi`, of each chain; NaN if not recorded.
        divergence_share: share of trajectories that diverged; NaN if not recorded.
        share_of_draws: share of draws in which any did.
        num_divergences: number of these draws; None if not recorded.
    """

    bfmi: Float[np.ndarray, " chain"]
    divergence_share: float
    share_of_draws: float
    num_divergences: int | None


def energies_of(statistics: Mapping[str, np.ndarray], num_chains: int) -> Energies:
    """Return energies and divergences from those statistics of the sampler that are recorded."""
    values = bfmi(statistics["energy"]) if "energy" in statistics else np.full(num_chains, np.nan)
    shares = [divergence_share(statistics[name]) for name in ("divergent_share", "diverging") if name in statistics]
    number = int(np.count_nonzero(statistics["diverging"])) if "diverging" in statistics else None
    return Energies(values, *((shares[0], shares[-1]) if shares else (np.nan, np.nan)), number)
