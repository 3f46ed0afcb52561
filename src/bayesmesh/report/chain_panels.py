"""Draw panels of chains: traces, ranks, energies, distributions of R-hat and ESS, and ESS by number of draws and by region."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from bayesmesh.analyses.figures.canvas import BAND, FAIL, MUTED, Panel, chain_id, draw, log_axis, series
from bayesmesh.report.diagnostics_tables import Coordinates
from bayesmesh.report.draws import RankDifference, thin_by_extremes

MAX_CHAINS = 8
"""Largest number of chains drawn in colour; the range of all chains is always shown."""

NUM_BLOCKS = 150

LEAST_EXCESS = 1e-4
"""Smallest excess of R-hat over 1 on the axis."""

MOST_EXCESS = 99.0
"""Largest one."""

MEASURES = {"r_hat": ("R-hat", 1.0), "ess_bulk": ("Bulk ESS", 0.0), "ess_tail": ("Tail ESS", 0.0)}
"""Measure -> title of its panel, and the value that is subtracted on its logarithmic axis."""

_WIDE, _NARROW, HALF = (340, 170), (220, 170), (340, 210)


def shown_chains(num_chains: int, apart: Sequence[int] = ()) -> list[int]:
    """Return the chains to draw in colour: up to `MAX_CHAINS`, evenly spaced.

    If there are more chains, those that lie apart from the others take up to half of the places.

    Args:
        num_chains: number of chains.
        apart: chains apart from the others, the most distant first.

    >>> shown_chains(3), shown_chains(64), shown_chains(64, [50])
    ([0, 1, 2], [0, 9, 18, 27, 36, 45, 54, 63], [0, 10, 21, 31, 41, 50, 53, 63])
    """
    most = min(num_chains, MAX_CHAINS)
    chosen = set(apart[: MAX_CHAINS // 2]) if num_chains > most else set()
    others = [chain for chain in range(num_chains) if chain not in chosen]
    spaced = np.linspace(0, len(others) - 1, most - len(chosen)).round()
    return sorted(chosen | {others[int(at)] for at in spaced})


def draw_trace(
    name: str,
    draws: np.ndarray,
    label: str,
    chains: Sequence[int],
    *,
    size: tuple[int, int] = _WIDE,
    first_draw: int = 0,
    **text: str,
) -> Panel:
    """Draw a trace, one colour per chain.

    Args:
        name: name of the panel, unique in the page.
        draws: shape (chain, draw); non-finite values are skipped.
        label: description for readers who cannot see the drawing.
        chains: chains to draw in colour.
        size: width and height, in px.
        first_draw: index of the first draw.
        **text: title and note of the panel.
    """
    num_chains, num_draws = draws.shape

    def plot(axes: Axes) -> None:
        if num_chains > len(chains):
            _fill_range(axes, draws, first_draw)
        for position, chain in enumerate(chains):
            x, y = thin_by_extremes(draws[chain], NUM_BLOCKS)
            axes.plot(x + first_draw, y, color=series(position), linewidth=0.8, alpha=0.85, gid=chain_id(chain))
        axes.set(xlim=(first_draw, first_draw + max(1, num_draws - 1)), xlabel="draw")

    return draw(name, plot, size=size, label=f"Trace of {label}: {num_chains} chains, {num_draws} draws", **text)


def _fill_range(axes: Axes, draws: np.ndarray, first_draw: int) -> None:
    """Shade the range over all chains, block by block."""
    blocks = [b for b in np.array_split(np.arange(draws.shape[1]), NUM_BLOCKS) if b.size]
    is_finite = np.isfinite(draws)
    low = np.array([draws[:, b].min(initial=np.inf, where=is_finite[:, b]) for b in blocks])
    high = np.array([draws[:, b].max(initial=-np.inf, where=is_finite[:, b]) for b in blocks])
    at = np.array([b.mean() for b in blocks]) + first_draw
    # A block without finite draws leaves a gap.
    axes.fill_between(at, low, high, where=low <= high, color=BAND, linewidth=0)


def rank_reach(found: Sequence[RankDifference | None]) -> float:
    """Return the end of the vertical axis that all rank panels share; the axis is symmetric about 0."""
    return 1.15 * max((max(each.band, float(np.abs(each.difference).max())) for each in found if each), default=1.0)


def draw_ranks(name: str, found: RankDifference, label: str, chains: Sequence[int], reach: float) -> Panel:
    """Draw the difference of each chain's rank distribution from that of all chains.

    Args:
        name: name of the panel, unique in the page.
        found: the differences.
        label: description for readers who cannot see the drawing.
        chains: chains to draw in colour.
        reach: end of the vertical axis, which starts at -`reach`.
    """
    num_chains = len(found.difference)

    def plot(axes: Axes) -> None:
        axes.fill_between(found.at, -found.band, found.band, color=BAND, linewidth=0)
        if num_chains > len(chains):
            axes.plot(found.at, found.difference.min(0), color=MUTED, linewidth=0.7, linestyle=":")
            axes.plot(found.at, found.difference.max(0), color=MUTED, linewidth=0.7, linestyle=":")
        for position, chain in enumerate(chains):
            line = found.difference[chain]
            axes.step(found.at, line, where="post", color=series(position), linewidth=1.1, gid=chain_id(chain))
        axes.set(xlim=(0, 1), ylim=(-reach, reach), xlabel="fractional rank", ylabel="ECDF difference")

    outside = int((np.abs(found.difference).max(axis=1) > found.band).sum())
    text = f"Rank distributions of {label}: {outside} of {num_chains} chains leave the band"
    return draw(name, plot, size=_NARROW, label=text)


def draw_energy(energy: np.ndarray) -> Panel | None:
    """Draw the distributions of the energy and of its changes between draws, pooled over chains.

    Args:
        energy: shape (chain, draw), in nats; chains with a non-finite value are left out.

    Returns:
        The panel; None for fewer than ten finite values, fewer than three draws per chain, or a constant energy.
    """
    finite = energy[np.isfinite(energy).all(axis=1)]
    if finite.size < 10 or finite.shape[1] < 3 or float(np.ptp(finite)) == 0.0:
        return None
    centred = (finite - finite.mean(axis=1, keepdims=True)).ravel()
    steps = np.diff(finite, axis=1).ravel()
    reach = float(np.quantile(np.abs(np.concatenate([centred, steps])), 0.998)) or 1.0
    edges = np.linspace(-reach, reach, 61)

    def plot(axes: Axes) -> None:
        for values, colour in ((centred, series(0)), (steps, series(3))):
            height, _ = np.histogram(values, edges, density=True)
            axes.stairs(height, edges, color=colour, linewidth=1.5)
            axes.stairs(height, edges, color=colour, alpha=0.15, fill=True)
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel("nats")

    note = (
        "The changes should spread as widely as the marginal; if they spread less, momentum resampling explores slowly."
    )
    return draw("energy", plot, size=HALF, label="Energies and their changes", title="Energy", note=note)


def draw_counts(measure: str, coordinates: Coordinates, limit: float | None) -> Panel | None:
    """Draw the distribution of a measure over all listed coordinates, on a logarithmic axis.

    Args:
        measure: one of `MEASURES`.
        coordinates: summaries and latents.
        limit: limit of the gate on this measure, or None.

    Returns:
        The panel; None if no coordinate has a finite, positive value.
    """
    title, origin = MEASURES[measure]
    found = [coordinates.numbers[measure][coordinates.is_summary == flag] for flag in (True, False)]
    summaries, latents = (values[np.isfinite(values) & (values > 0)] for values in found)
    num_left_out = len(coordinates) - summaries.size - latents.size
    if origin:
        summaries, latents = (np.clip(values - origin, LEAST_EXCESS, MOST_EXCESS) for values in (summaries, latents))
        limit = None if limit is None else limit - origin
    both = np.concatenate([summaries, latents])
    if both.size == 0:
        return None
    ends = [float(both.min()), float(both.max())] + ([limit] if limit is not None and limit > 0 else [])
    edges = np.geomspace(min(ends) / 1.15, max(ends) * 1.15, 41)

    def plot(axes: Axes) -> None:
        for values, colour, alpha in ((latents, MUTED, 0.35), (summaries, series(0), 0.8)):
            if values.size:
                axes.stairs(np.histogram(values, edges)[0] / values.size, edges, color=colour, fill=True, alpha=alpha)
        axes.set_xscale("log")
        log_axis(axes.xaxis, lambda v: f"{origin + v:,.7g}")
        if limit is not None and limit > 0:
            axes.axvline(limit, color=FAIL, linewidth=1.4, linestyle=(0, (4, 2)))
        axes.yaxis.set_major_formatter(lambda v, _: f"{v * 100:.0f}%")
        axes.set_ylim(bottom=0)

    share = f"{summaries.size:,} coordinates"
    if latents.size:
        share = f"{summaries.size:,} identified summaries and of {latents.size:,} latents"
    note = f"Share of {share}."
    if num_left_out:
        note += f" {num_left_out:,} without a finite value are left out here but counted by the gates."
    note += " Dashed: the limit of the gate." if limit else ""
    if origin:
        note += f" The axis is logarithmic in R-hat - 1; values below {origin + LEAST_EXCESS} are drawn at {origin + LEAST_EXCESS}"
        note += (
            f", and values above {origin + MOST_EXCESS:g} at {origin + MOST_EXCESS:g}."
            if both.max() >= MOST_EXCESS
            else "."
        )
    return draw(measure, plot, size=HALF, label=f"Distribution of {title}", title=title, note=note)


NUM_LOOKS = 12
"""Largest number of points of a curve of growth."""

NUM_INTERVALS = 20
"""Number of intervals of equal probability."""

_QUANTILES = np.linspace(0.05, 0.95, 19)
_FEWEST_DRAWS = 20


def draw_growth(draws: np.ndarray, label: str, limit: float | None) -> Panel | None:
    """Draw bulk and tail effective sample sizes of the first draws of all chains, for growing numbers of draws.

    Args:
        draws: (chain, draw), float64.
        label: label of the quantity.
        limit: limit of the gate on bulk ESS, or None.

    Returns:
        The panel; None for fewer than 20 draws per chain, or a non-finite draw.
    """
    from bayesmesh.diagnostics.efficiency import growing_ess  # imports scipy

    num_chains, num_draws = draws.shape
    if num_draws < _FEWEST_DRAWS or not np.isfinite(draws).all():
        return None
    counts = np.unique(np.linspace(num_draws / NUM_LOOKS, num_draws, NUM_LOOKS).round().astype(int).clip(4))
    bulk, tail = growing_ess(draws[:, :, None], counts.tolist())

    def plot(axes: Axes) -> None:
        for number, values in enumerate((bulk[:, 0], tail[:, 0])):
            axes.plot(counts, values, color=series(3 * number), linewidth=1.5, marker="o", markersize=3)
        _mark(axes, limit)
        axes.set(xlim=(0, num_draws), xlabel="draws of each chain")

    note = f"ESS of {label}. Both curves should grow in proportion to the draws; one that levels off or falls means that a mode or a tail was found late."
    said = f"Effective sample sizes of {label} against the number of draws of {num_chains} chains"
    return draw("growth", plot, size=HALF, label=said, title="Effective draws as draws grow", note=note)


def draw_efficiency(draws: np.ndarray, label: str, limit: float | None) -> Panel | None:
    """Draw effective sample sizes for quantiles and for probabilities of small intervals; see `draw_growth`."""
    from bayesmesh.diagnostics.efficiency import local_ess, quantile_ess

    if draws.shape[1] < _FEWEST_DRAWS or not np.isfinite(draws).all():
        return None
    of_quantiles = quantile_ess(draws[:, :, None], _QUANTILES.tolist())[:, 0]
    local = local_ess(draws[:, :, None], NUM_INTERVALS)[:, 0]
    edges = np.linspace(0, 1, NUM_INTERVALS + 1)

    def plot(axes: Axes) -> None:
        axes.stairs(local, edges, color=MUTED, fill=True, alpha=0.35)
        axes.plot(_QUANTILES, of_quantiles, color=series(0), linewidth=1.5, marker="o", markersize=3)
        _mark(axes, limit)
        axes.set(xlim=(0, 1), xlabel="probability")

    note = (
        f"ESS for {label}. Line: for the estimate of each quantile. Shaded: for the probabilities of {NUM_INTERVALS} intervals between"
        " quantiles. A dip marks a region that chains seldom enter or leave."
    )
    said = f"Effective sample sizes of quantiles and of small intervals of {label}"
    return draw("efficiency", plot, size=HALF, label=said, title="Effective draws by region", note=note)


def _mark(axes: Axes, limit: float | None) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if limit is not None and limit > 0:
        axes.axhline(limit, color=FAIL, linewidth=1.4, linestyle=(0, (4, 2)))
