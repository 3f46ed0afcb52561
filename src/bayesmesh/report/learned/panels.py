"""Draw posterior estimates: densities, forest plots, and the intervals of many coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import INK, MUTED, Panel, draw, series, tip
from bayesmesh.report.learned.choice import Finding
from bayesmesh.report.learned.estimates import Estimate
from bayesmesh.store.posterior.coordinates import choose_coordinates

NUM_POINTS = 128
"""Number of points at which a density is drawn."""

TRUTH_COLOUR = series(3)

_DASHED = (0, (4, 2))


def density(draws: np.ndarray, num_points: int = NUM_POINTS) -> tuple[np.ndarray, np.ndarray] | None:
    """Return points and a kernel density estimate of draws at these points.

    The estimate has a normal kernel with Silverman's bandwidth, on binned draws. Mass beyond the smallest and the
    largest draw is reflected, so that a bound, such as that of a standard deviation at 0, stays visible.

    Args:
        draws: draws, any shape.
        num_points: number of points, the midpoints of bins from the smallest to the largest draw.

    Returns:
        Points and density, which integrates to 1; None for fewer than four draws, a non-finite draw, or equal draws.

    Reference:
        Silverman 1986, "Density estimation for statistics and data analysis", section 3.4.

    >>> at, height = density(np.linspace(0, 1, 1001))
    >>> round(float(np.trapezoid(height, at)), 3)
    1.0
    """
    flat = draws.ravel()
    if flat.size < 4 or not np.isfinite(flat).all() or flat.min() == flat.max():
        return None
    low, high = float(flat.min()), float(flat.max())
    quartiles = np.quantile(flat, (0.25, 0.75))
    spreads = [s for s in (float(flat.std()), float(np.ptp(quartiles)) / 1.34) if s > 0]
    width = 0.9 * min(spreads) * flat.size**-0.2
    edges = np.linspace(low, high, num_points + 1)
    at = (edges[1:] + edges[:-1]) / 2
    counts = np.histogram(flat, edges)[0] / flat.size
    # The mass of each bin, and of its mirror images beyond both ends.
    height = np.zeros(num_points)
    for centres in (at, 2 * low - at, 2 * high - at):
        height += np.exp(-0.5 * ((at[:, None] - centres[None]) / width) ** 2) @ counts
    height /= np.trapezoid(height, at)
    return at, height


def draw_density(name: str, estimate: Estimate, draws: np.ndarray, title: str) -> Panel | None:
    """Draw the density of one coordinate, with its interval shaded.

    Args:
        name: name of the panel, unique in the page.
        estimate: estimate of the coordinate.
        draws: draws of the coordinate, shape (chain, draw).
        title: title of the panel.

    Returns:
        The panel; None if `density` is None.
    """
    found = density(draws)
    if found is None:
        return None
    at, height = found

    def plot(axes: Axes) -> None:
        inside = (at >= estimate.low) & (at <= estimate.high)
        axes.fill_between(at, height, where=inside, color=series(0), alpha=0.22, linewidth=0)
        axes.plot(at, height, color=series(0), linewidth=1.5, gid=tip(reading(estimate)))
        axes.axvline(estimate.item.mean, ymax=0.94, color=series(0), linewidth=1.2)
        if math.isfinite(estimate.truth):
            text = f"truth {formats.real(estimate.truth)}"
            axes.axvline(estimate.truth, color=TRUTH_COLOUR, linewidth=1.6, linestyle=_DASHED, gid=tip(text))
        if estimate.reference is not None and at[0] <= estimate.reference <= at[-1]:
            axes.axvline(estimate.reference, color=MUTED, linewidth=1, linestyle=":")
        axes.set_ylim(bottom=0)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False)

    return draw(name, plot, size=(250, 130), label=f"Density of {reading(estimate)}", title=title)


def draw_forest(name: str, estimates: Sequence[Estimate], label: str, names: Sequence[str], gap: int = 0) -> Panel:
    """Draw a forest plot: one interval per line, the first at the top.

    Args:
        name: name of the panel, unique in the page.
        estimates: estimate of each line.
        label: description for readers who cannot see the drawing.
        names: name of each line.
        gap: number of lines above a gap, which stands for coordinates that are left out; 0 for no gap.
    """
    places = [-n - (0.8 if gap and n >= gap else 0.0) for n in range(len(estimates))]
    references = {each.reference for each in estimates if each.reference is not None}

    def plot(axes: Axes) -> None:
        for reference in references:
            axes.axvline(reference, color=MUTED, linewidth=1, linestyle=_DASHED)
        for place, each in zip(places, estimates, strict=True):
            shade = 0.45 if each.reference is not None and not each.side else 1.0
            axes.hlines(place, each.low, each.high, color=series(0), linewidth=2, alpha=shade, gid=tip(reading(each)))
            axes.plot(
                [each.item.mean],
                [place],
                color=series(0),
                marker="o",
                markersize=4,
                alpha=shade,
                gid=tip(reading(each)),
            )
            if math.isfinite(each.truth):
                text = f"{each.item.label}: truth {formats.real(each.truth)}"
                axes.plot(
                    [each.truth], [place], color=TRUTH_COLOUR, marker="D", markersize=4, linewidth=0, gid=tip(text)
                )
        if gap:
            axes.axhline(-gap + 0.1, color=MUTED, linewidth=0.8, linestyle=":")
        axes.set_yticks(places, [formats.shortened(each, 34) for each in names])
        axes.set_ylim(min(places) - 0.6, 0.6)
        axes.grid(axis="y", visible=False)

    return draw(name, plot, size=(440, 46 + round(17 * (len(estimates) + bool(gap)))), label=label)


def draw_all(name: str, finding: Finding, truths: np.ndarray, label: str) -> Panel:
    """Draw the intervals of many coordinates side by side, by ascending mean: at most 400 of them, evenly spaced.

    Args:
        name: name of the panel, unique in the page.
        finding: the coordinates; those that do not share the axis, or have no finite interval, are left out.
        truths: (coordinate,), true values; NaN if unknown.
        label: description for readers who cannot see the drawing.
    """
    low, mean, high = (finding.coordinates.numbers[each] for each in ("q5", "mean", "q95"))
    kept = np.flatnonzero(np.isfinite(low) & np.isfinite(high) & finding.shares_axis)
    # More lines than pixels would only make the file large.
    chosen = kept[np.argsort(mean[kept], kind="stable")][choose_coordinates(len(kept), 400)]
    at = np.linspace(0, 100, len(chosen))
    low, mean, high, truth = (values[chosen] for values in (low, mean, high, truths))
    references = np.unique(finding.references[kept][~np.isnan(finding.references[kept])])

    def plot(axes: Axes) -> None:
        axes.vlines(at, low, high, color=series(0), linewidth=0.9, alpha=0.45)
        axes.plot(at, mean, color=INK, linewidth=1.4)
        if np.isfinite(truth).any():
            axes.plot(at, truth, color=TRUTH_COLOUR, marker="o", markersize=2, linewidth=0)
        for reference in references:
            axes.axhline(reference, color=MUTED, linewidth=1, linestyle=_DASHED)
        axes.set(xlim=(0, 100), xlabel="rank of the posterior mean, percent")

    return draw(name, plot, size=(440, 210), label=label)


def reading(each: Estimate) -> str:
    """Return the label, the mean and the interval of an estimate as text."""
    mean, low, high = map(formats.real, (each.item.mean, each.low, each.high))
    return f"{each.item.label}: mean {mean}, 90% interval {low} to {high}"
