"""Build the convergence section: traces and ranks of the worst summaries, log density, energy, warmup, R-hat, ESS."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import Panel
from bayesmesh.diagnostics.gates.modes import chains_apart, find_modes
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.chain_panels import (
    HALF,
    MEASURES,
    NUM_BLOCKS,
    draw_counts,
    draw_efficiency,
    draw_energy,
    draw_growth,
    draw_ranks,
    draw_trace,
    rank_reach,
    shown_chains,
)
from bayesmesh.report.diagnostics_tables import Coordinate, Coordinates, worst_first
from bayesmesh.report.draws import DrawReader, rank_difference
from bayesmesh.report.learned.effects import meanings_of

NUM_WORST = 12


class StatisticRow(NamedTuple):
    """A statistic of the kernel: its declaration, mean and range over all draws, smallest and largest chain mean."""

    name: str
    unit: str
    description: str
    mean: float
    smallest: float
    largest: float
    least_mean: float
    most_mean: float


def build_convergence(
    coordinates: Coordinates,
    verdict: Verdict,
    reader: DrawReader,
    num_traces: int,
    meanings: Mapping[str, str],
) -> dict[str, Any]:
    """Return the content of ``convergence.html``; panels that cannot be drawn are left out.

    Args:
        coordinates: rows of ``summary.csv``, with identified summaries marked.
        verdict: verdict, with its gates and numbers of chains and draws.
        reader: reader of the posterior.
        num_traces: largest number of summaries with traces.
        meanings: latent or summary -> its meaning.

    Raises:
        StoreError: a chunk of the posterior is missing or damaged.
    """
    of_summaries = np.flatnonzero(coordinates.is_summary)
    summaries, latents = (
        worst_first(coordinates.take(each)) for each in (of_summaries, np.flatnonzero(~coordinates.is_summary))
    )
    num_chains, num_draws = verdict.num_chains, verdict.num_draws
    apart = _chains_apart(verdict, reader, summaries)
    chains = shown_chains(num_chains, apart) if num_chains else []
    limits = {name: gate.limit for name in MEASURES if (gate := verdict.gate(name))}

    # Named ones lead, and others only beyond the limit.
    leads = summaries.is_named | ~(summaries.numbers["r_hat"] <= limits.get("r_hat", math.inf))
    first = np.flatnonzero(leads)[: num_traces // 2].tolist()
    cards = _trace_cards(summaries, first, reader, chains, num_traces)
    density = _density_panels(reader, chains)
    spread = [draw_counts(name, coordinates, limits.get(name)) for name in MEASURES]
    return {
        "worst": [
            ("The worst summaries", summaries.take(np.argsort(~leads[:NUM_WORST], kind="stable"))),
            ("The worst latents, which need not be identified", latents[:NUM_WORST]),
        ],
        "precision": _precision_panels(summaries, reader, limits),
        "num_coordinates": len(coordinates),
        "meanings": meanings_of([item.variable for item in summaries[:NUM_WORST]], meanings),
        "cards": cards,
        "chains": chains if cards or density else [],
        "num_chains": num_chains,
        "density": density,
        "spread": [panel for panel in spread if panel],
        "warmup": _warmup_panels(reader, chains),
        "statistics": _statistic_rows(reader),
        "thinning": _thinning(num_chains, num_draws, chains, set(apart) & set(chains)),
        "bfmi": _bfmi_text(verdict.bfmi),
    }


def _chains_apart(verdict: Verdict, reader: DrawReader, summaries: Coordinates) -> list[int]:
    """Return the chains that the gate `modes` names; none if it passed, or for many datasets."""
    gate = verdict.gate("modes")
    if gate is None or verdict.datasets is not None:
        return []
    log_density = reader.statistic("lp")
    by_density = [] if log_density is None else chains_apart(log_density)
    labels = [] if by_density else summaries.labels()
    draws = reader.coordinate(summaries[labels.index(gate.where)]) if gate.where in labels else None
    modes = None if draws is None else find_modes(draws, gate.where)
    return by_density if modes is None else modes.chains


def _trace_cards(
    summaries: Coordinates,
    first: Sequence[int],
    reader: DrawReader,
    chains: Sequence[int],
    num_traces: int,
) -> list[dict[str, Any]]:
    """Return traces and rank plots of up to `num_traces` summaries that have draws, starting with those at the positions `first`."""
    found: list[tuple[Coordinate, np.ndarray]] = []
    for n in itertools.chain(first, (n for n in range(len(summaries)) if n not in first)):
        item = summaries[n]
        draws = reader.coordinate(item)
        if draws is not None and draws.size:
            found.append((item, draws))
        if len(found) == num_traces:
            break
    ranks = [rank_difference(draws) for _, draws in found]
    reach = rank_reach(ranks)
    return [
        {
            "coordinate": item,
            "trace": draw_trace(f"trace-{n}", draws, item.label, chains),
            "ranks": draw_ranks(f"ranks-{n}", rank, item.label, chains, reach) if rank else None,
        }
        for n, ((item, draws), rank) in enumerate(zip(found, ranks, strict=True))
    ]


def _precision_panels(summaries: Coordinates, reader: DrawReader, limits: Mapping[str, float]) -> list[Panel]:
    """Return panels on the summary with the smallest bulk ESS."""
    sizes = summaries.numbers["ess_bulk"]
    known = np.flatnonzero(np.isfinite(sizes))
    lowest = summaries[int(known[sizes[known].argmin()])] if known.size else None
    draws = reader.coordinate(lowest) if lowest else None
    if lowest is None or draws is None or not draws.size:
        return []
    drawn = (each(draws, lowest.label, limits.get("ess_bulk")) for each in (draw_growth, draw_efficiency))
    return [panel for panel in drawn if panel]


def _density_panels(reader: DrawReader, chains: Sequence[int]) -> list[Panel]:
    panels: list[Panel | None] = []
    log_density = reader.statistic("lp")
    if log_density is not None and log_density.size:
        note = "In nats. It should look like a level, even band in which all chains overlap."
        panels.append(
            draw_trace("log-density", log_density, "log density", chains, size=HALF, title="Log density", note=note)
        )
    energy = reader.statistic("energy")
    if energy is not None and energy.size:
        panels.append(draw_energy(energy))
    return [panel for panel in panels if panel]


def _warmup_panels(reader: DrawReader, chains: Sequence[int]) -> list[Panel]:
    wanted = (
        ("lp", "Log density in warmup", "In nats, over the second half of warmup, where it should have levelled off."),
        ("step_size", "Step size in warmup", "One line if all chains share it."),
        ("acceptance_rate", "Acceptance rate in warmup", "Running mean over the draws so far."),
    )
    panels = []
    for name, title, note in wanted:
        values = reader.statistic(name, "warmup_sample_stats")
        if values is None or values.shape[1] < 4:
            continue
        first = values.shape[1] // 2 if name == "lp" else 0
        values = values[:, first:]
        if name == "acceptance_rate":
            values = _running_mean(values)
        if name == "step_size" and bool((values == values[:1]).all()):
            values = values[:1]
        label = f"warmup-{name.replace('_', '-')}"
        drawn = chains if len(values) > 1 else [0]
        panels.append(draw_trace(label, values, title, drawn, size=HALF, first_draw=first, title=title, note=note))
    return panels


def _running_mean(values: np.ndarray) -> np.ndarray:
    """Return the mean of each value and those before it, per row, without NaN; NaN before the first number.

    >>> _running_mean(np.array([[math.nan, 0.5, math.nan, 1.0]]))
    array([[ nan, 0.5 , 0.5 , 0.75]])
    """
    count = np.cumsum(~np.isnan(values), axis=1)
    return np.where(count, np.nancumsum(values, axis=1) / np.maximum(count, 1), math.nan)


def _statistic_rows(reader: DrawReader) -> list[StatisticRow]:
    """Return a row for each statistic that the kernel declares.

    Non-finite values are left out, and the description states their number.
    """
    rows = []
    for name, unit, description in reader.declared_statistics():
        values = reader.statistic(name)
        if values is None or not values.size:
            continue
        chains = [kept for chain in values if (kept := chain[np.isfinite(chain)]).size]
        means = [float(kept.mean()) for kept in chains] or [math.nan]
        every = np.concatenate(chains) if chains else np.array([math.nan])
        spread, lost = (min(means), max(means)), int(values.size - np.isfinite(values).sum())
        description += f" ({lost:,} of {values.size:,} values are not finite and are left out)" if lost else ""
        rows.append(StatisticRow(name, unit, description, every.mean(), every.min(), every.max(), *spread))
    return rows


def _thinning(num_chains: int, num_draws: int, chains: Sequence[int], apart: Collection[int]) -> str:
    parts = []
    if num_draws > 2 * NUM_BLOCKS:
        parts.append(
            f"Each trace shows the smallest and the largest of every {math.ceil(num_draws / NUM_BLOCKS)} consecutive draws, "
            f"so no excursion is lost"
        )
    if num_chains > len(chains):
        said = f"chain{'s' if len(apart) > 1 else ''} {', '.join(map(str, sorted(apart)))}"
        named = (
            f", including {said}, which {'lie' if len(apart) > 1 else 'lies'} apart from the others" if apart else ""
        )
        parts.append(
            f"{len(chains)} of {formats.count(num_chains)} chains are coloured{named or ', evenly spaced'}; "
            "the range of all chains is shaded in the traces and dotted in the rank plots"
        )
    return ". ".join(parts) + "." if parts else ""


def _bfmi_text(bfmi: Sequence[float]) -> str:
    """Return the Bayesian fraction of missing information (BFMI) of each chain, or its distribution, in words.

    >>> _bfmi_text([0.9, 1.1]), _bfmi_text([])
    ('BFMI by chain: 0.900, 1.10.', '')
    >>> _bfmi_text([0.5] * 5 + [1.0] * 5)
    'BFMI over 10 chains: smallest 0.500, median 0.750.'
    """
    if not bfmi:
        return ""
    if len(bfmi) <= 8:
        return f"BFMI by chain: {', '.join(formats.real(value, 3) for value in bfmi)}."
    finite = sorted(value for value in bfmi if math.isfinite(value))
    if not finite:
        return f"BFMI is not a number in any of {len(bfmi):,} chains."
    low, middle = formats.real(finite[0], 3), formats.real(statistics.median(finite), 3)
    lost = len(bfmi) - len(finite)
    tail = f", {lost} not a number." if lost else "."
    return f"BFMI over {len(bfmi):,} chains: smallest {low}, median {middle}{tail}"
