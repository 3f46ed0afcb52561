"""Assess the draws of one dataset, held in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.energy import bfmi, divergence_share
from bayesmesh.diagnostics.gates.ancestors import NUM_RELATIVES, ancestors_gate
from bayesmesh.diagnostics.gates.evaluation import evaluate_gates
from bayesmesh.diagnostics.gates.finite import NonFinite
from bayesmesh.diagnostics.gates.funnel import MOST_LATENTS, complete_gates
from bayesmesh.diagnostics.gates.mode_stays import ModeStays
from bayesmesh.diagnostics.gates.modes import modes_gate
from bayesmesh.diagnostics.gates.movement import Movement
from bayesmesh.diagnostics.gates.populations import judge_populations
from bayesmesh.diagnostics.verdict import GateResult
from bayesmesh.store.posterior.coordinates import choose_coordinates, coordinate_index


class Draws(NamedTuple):
    """Draws of one dataset, name -> (chain, draw, ...): summaries, latents and statistics of the sampler."""

    summaries: Mapping[str, np.ndarray]
    latents: Mapping[str, np.ndarray]
    statistics: Mapping[str, np.ndarray]


def assess(
    table: pd.DataFrame, draws: Draws, recorded: set[str], gates: GateSettings, num_populations: int = 0
) -> list[GateResult]:
    """Return the results of all gates, starting with those that exist only if missed.

    Args:
        table: convergence of the summaries, as for `evaluate_gates`.
        draws: of the dataset.
        recorded: statistics that the kernel declares.
        gates: limits.
        num_populations: number of populations that the chains are; 0 if chains are independent.
    """
    non_finite, movement, apart = NonFinite(), Movement(), ModeStays()
    for name, values in draws.summaries.items():
        flat = values.reshape(*values.shape[:2], -1)
        movement.add(flat)
        places = [_place(name, position, values.shape[2:]) for position in range(flat.shape[2])]
        non_finite.add(flat, places)
        apart.add(name, flat, places, table["chance"].to_numpy(np.float64)[table["variable"] == name])
    for values in draws.latents.values():
        movement.add(values.reshape(*values.shape[:2], -1))
    share, of_draws = divergences(draws.statistics)
    results = evaluate_gates(
        table,
        share if "diverging" in recorded else None,
        _energies(draws.statistics, len(next(iter(draws.latents.values())))) if "energy" in recorded else None,
        gates,
        of_draws,
    )
    lp = draws.statistics.get("lp")
    if num_populations:
        num_chains = len(next(iter(draws.latents.values())))
        in_modes, results = judge_populations(results, table, num_populations, num_chains)
    else:
        in_modes = (None if lp is None else modes_gate(lp)) or apart.gate()
    relatives = draws.statistics.get(NUM_RELATIVES)
    few = None if relatives is None else ancestors_gate(relatives[:, -1])
    found = non_finite.gate(), movement.gate(), in_modes
    return complete_gates(results, found, few, lp, lambda: _latent_blocks(draws.latents))


def _place(name: str, position: int, shape: tuple[int, ...]) -> str:
    index = coordinate_index(position, shape)
    return f"{name}[{index}]" if index else name


def divergences(statistics: Mapping[str, np.ndarray]) -> tuple[float, float]:
    """Return the share of trajectories that diverged, and the share of draws in which any did; NaN if not recorded.

    Args:
        statistics: of the sampler, name -> (chain, draw).
    """
    if "diverging" not in statistics:
        return float("nan"), float("nan")
    of_draws = divergence_share(statistics["diverging"])
    return divergence_share(statistics["divergent_share"]) if "divergent_share" in statistics else of_draws, of_draws


def _energies(statistics: Mapping[str, np.ndarray], num_chains: int) -> np.ndarray:
    return bfmi(statistics["energy"]) if "energy" in statistics else np.full(num_chains, np.nan)


def _latent_blocks(latents: Mapping[str, np.ndarray]) -> Iterator[tuple[list[str], np.ndarray]]:
    """Yield names and draws (chain, draw, coordinate) of some coordinates of each latent."""
    for name, values in latents.items():
        flat = values.reshape(*values.shape[:2], -1)
        chosen = choose_coordinates(flat.shape[2], MOST_LATENTS)
        yield [_place(name, int(position), values.shape[2:]) for position in chosen], flat[:, :, chosen]
