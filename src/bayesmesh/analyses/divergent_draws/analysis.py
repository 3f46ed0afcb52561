"""divergent_draws: where in the posterior divergences gather."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from bayesmesh.analyses.figures.canvas import Panel

from bayesmesh.analyses.base import Analysis, Subject
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.documents import read_csv, read_table, render_csv
from bayesmesh.analyses.figures.sections import Section, html_table, render
from bayesmesh.analyses.options import DivergentDrawsOptions as Options
from bayesmesh.diagnostics.ranks import average_ranks
from bayesmesh.files import write_text
from bayesmesh.store.arrays import read_part
from bayesmesh.store.posterior.coordinates import choose_coordinates, named_coordinates
from bayesmesh.store.posterior.reader import BLOCK_BYTES, Posterior


class DivergentDraws(Analysis):
    """Values of latents, and pairs of them, at which transitions diverge."""

    pretty_name = "Where divergences gather"
    outputs = ("divergent.csv", "pairs.csv", "draws.csv")
    message = "Look for the places of divergences in {experiment}"
    reads = ("posterior",)
    options: Options

    def run(self, subject: Subject, others: Mapping[str, Subject], files: Mapping[str, Path]) -> str:
        """Compare divergent draws with the others, by latent and by pair; return the clearest latent as text."""
        del others
        return find_places(subject.posterior, self.options, files)

    def section(self, files: Mapping[str, Path]) -> Section | None:
        """Name the latents and plot the pairs."""
        table = read_places(files["divergent.csv"])
        if table.empty:
            return None
        pairs = read_csv(files["pairs.csv"], ("first", "second"))[:MOST_PAIRS]
        wanted = list(dict.fromkeys(row.text(end) for row in pairs for end in ("first", "second")))
        draws = read_table(files["draws.csv"], numbers=("diverging", *wanted))
        shown = table.drop(columns="num_divergent").head(MOST_ROWS)
        body = render(
            Path(__file__).with_name("section.html"),
            sentence=sentence(table),
            panels=[draw_pair(row.text("first"), row.text("second"), draws) for row in pairs],
            rows=html_table(shown, "Latents by how divergent draws lie along them"),
        )
        return Section(body)

    def cell(self, files: Mapping[str, Path]) -> str:
        """Name the latent at which divergences gather most."""
        table = read_places(files["divergent.csv"])
        if table.empty or table.iloc[0]["p_value"] >= LEVEL:
            return ""
        return f"divergences where {table.iloc[0]['latent']} {ENDS[table.iloc[0]['end']]}"


DIVERGING = "sample_stats/diverging"

LEVEL = 0.01
"""Largest probability that any latent is named although divergences are distributed like the other draws."""

NUM_PAIRED = 6
"""Number of latents of which all pairs are examined."""

TAIL = 0.1
"""Share of the other draws that lies in the end of a latent's distribution."""


_READ_BYTES = 256 * 2**20
"""Limit on draws in memory; with longer chains, fewer coordinates are examined."""


class Place(NamedTuple):
    """Where divergent draws lie along one latent.

    Attributes:
        latent: name, with its index if it has one.
        end: ``low``, ``high``, or ``both`` ends, where they are more frequent.
        share: share of the divergent draws in this end, which holds a share `TAIL` of the other draws.
        p_value: of a rank test that allows for autocorrelation, times the numbers of latents and of tests.
    """

    latent: str
    end: str
    share: float
    p_value: float


def find_places(posterior: Posterior, options: Options, files: Mapping[str, Path]) -> str:
    """Write where divergences gather, and return the clearest latent as text.

    Args:
        posterior: the draws.
        options: settings.
        files: paths of the outputs.
    """
    array = posterior.find(DIVERGING)
    shape = (posterior.num_chains, posterior.num_draws)
    diverging = np.zeros(shape, bool) if array is None else read_part(array).astype(bool)
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    most = max(1, min(options.latents, _READ_BYTES // (8 * diverging.size)))
    found = {name: each.ravel().astype(np.float64) for name, each in named_coordinates(arrays, most, BLOCK_BYTES)}
    names, draws = list(found), np.stack(list(found.values()))
    is_divergent = diverging.ravel()
    places = _places(names, draws, is_divergent) if is_divergent.any() and not is_divergent.all() else []
    gathered = [each for each in places if each.p_value < LEVEL]
    chosen = [names.index(each.latent) for each in (gathered or places)[:NUM_PAIRED]]
    pairs = _pairs(chosen, draws, is_divergent)
    write_text(
        files["divergent.csv"],
        render_csv((*Place._fields, "num_divergent"), [(*p, int(is_divergent.sum())) for p in places]),
    )
    write_text(
        files["pairs.csv"],
        render_csv(("first", "second", "separation"), [(names[a], names[b], s) for a, b, s in pairs]),
    )
    kept = _kept(is_divergent, options.drawn)
    columns = [names[i] for i in chosen]
    rows = np.column_stack([is_divergent[kept], *(draws[i][kept] for i in chosen)]).tolist() if chosen else []
    write_text(files["draws.csv"], render_csv(("diverging", *columns), rows))
    if not is_divergent.any():
        return "no divergence"
    where = f"; most at the {gathered[0].end} end of {gathered[0].latent}" if gathered else ""
    return f"{int(is_divergent.sum())} divergent draws{where}"


def _places(
    names: list[str], draws: Float[np.ndarray, "latent draw"], is_divergent: Bool[np.ndarray, " draw"]
) -> list[Place]:
    """Return a place for each latent that varies, the clearest first.

    A sum of few ranks has lighter tails than the normal distribution, so the test is conservative for few divergences:
    one or two never reach the level at which a latent is named. The shares still say where they lie.
    """
    found = []
    for name, values in zip(names, draws, strict=True):
        if not np.isfinite(values).all() or np.ptp(values) == 0:
            continue
        ranks = average_ranks(values) / (len(values) + 1)
        far = np.abs(ranks - 0.5)
        # Towards one end, or towards both: divergences at both ends of a latent may have the same median as the other draws.
        p_one, p_both = (p_value_of_shifts(x, is_divergent) for x in (ranks, far))
        low, high = np.quantile(ranks[~is_divergent], (TAIL, 1 - TAIL))
        shares = {
            "low": float((ranks[is_divergent] <= low).mean()),
            "high": float((ranks[is_divergent] >= high).mean()),
            "both": float((far[is_divergent] >= np.quantile(far[~is_divergent], 1 - TAIL)).mean()),
        }
        end = "both" if p_both < p_one else max(("low", "high"), key=lambda key: shares[key])
        found.append(Place(name, end, shares[end], min(1.0, 2 * len(names) * min(p_one, p_both))))
    return sorted(found, key=lambda each: (each.p_value, -each.share))


def p_value_of_shifts(ranks: Float[np.ndarray, " draw"], is_divergent: Bool[np.ndarray, " draw"]) -> float:
    """Return the two-sided p-value of the sum of the ranks of divergent draws, both series being autocorrelated.

    The sum is compared with those of all cyclic shifts of the divergences along the concatenated chains: a shift
    preserves the autocorrelation of each series and breaks the dependence between them. The p-value is that of a normal
    distribution with the variance of these sums.

    Args:
        ranks: of all draws, or a function of them.
        is_divergent: the same draws.

    >>> ranks = np.random.default_rng(0).random(1000)
    >>> p_value_of_shifts(ranks, ranks < 0.01) < 0.01
    True
    """
    spectrum = np.conj(np.fft.rfft(is_divergent)) * np.fft.rfft(ranks - ranks.mean())
    sums = np.fft.irfft(spectrum, len(ranks))
    spread = float(sums.std())
    return float(2 * ndtr(-abs(sums[0]) / spread)) if spread > 0 else 1.0


def _pairs(
    chosen: list[int], draws: Float[np.ndarray, "latent draw"], is_divergent: Bool[np.ndarray, " draw"]
) -> list[tuple[int, int, float]]:
    """Return pairs of latents and the distance between divergent and other draws in them, the largest first.

    It is the Mahalanobis distance between the mean ranks, in standard deviations of the other draws.
    """
    found = []
    for a, b in itertools.combinations(chosen, 2):
        ranks = np.stack([average_ranks(draws[i]) for i in (a, b)])
        others = ranks[:, ~is_divergent]
        gap = ranks[:, is_divergent].mean(axis=1) - others.mean(axis=1)
        distance = float(gap @ np.linalg.pinv(np.cov(others)) @ gap)
        found.append((a, b, math.sqrt(max(distance, 0.0))))
    return sorted(found, key=lambda each: -each[2])


def _kept(is_divergent: Bool[np.ndarray, " draw"], most: int) -> np.ndarray:
    """Return the numbers of the draws in the figures: at most `most` of each kind, evenly spaced."""
    kinds = np.flatnonzero(~is_divergent), np.flatnonzero(is_divergent)
    return np.concatenate([kind[choose_coordinates(len(kind), most)] for kind in kinds])


FEWEST_DIVERGENT = 5
"""Divergent draws from which it can be said that they do not gather."""

MOST_PAIRS, MOST_ROWS, MOST_NAMED = 3, 10, 3

ENDS = {"low": "is small", "high": "is large", "both": "is far from its middle on either side"}


def read_places(path: Path) -> pd.DataFrame:
    """Return the latents, the clearest first; empty for few divergences.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, texts=("latent", "end"), numbers=("share", "p_value", "num_divergent"))


def sentence(table: pd.DataFrame) -> str:
    """Return where divergences gather, in words."""
    number = formats.count(table.iloc[0]["num_divergent"])
    gathered = table[table["p_value"] < LEVEL]
    if gathered.empty and table.iloc[0]["num_divergent"] < FEWEST_DIVERGENT:
        is_one = table.iloc[0]["num_divergent"] == 1
        return (
            f"{number} draw{' is' if is_one else 's are'} divergent: too few to say whether divergences gather. "
            "The figures and the table show where they lie; if the posterior has a funnel there, draws are missing all the same."
        )
    if gathered.empty:
        return f"{number} draws are divergent. They do not gather along any latent: first try a smaller step size (a higher target acceptance)."
    parts = [
        f"{row['latent']} {ENDS[row['end']]} ({formats.share(row['share'], 0)} of them, but {formats.share(TAIL, 0)} of the other draws)"
        for row in gathered.head(MOST_NAMED).to_dict("records")
    ]
    return (
        f"{number} draws are divergent. They gather where {'; where '.join(parts)}. There the posterior is too narrow or too curved for the step size, and "
        "draws are missing: reparametrise what depends on this latent (non-centred, or on another scale), or give it a prior that keeps away from there."
    )


def draw_pair(first: str, second: str, draws: pd.DataFrame) -> Panel:
    """Draw two latents, divergent draws above the others."""
    from bayesmesh.analyses.figures.canvas import MUTED, draw, series

    is_divergent = draws["diverging"] > 0

    def plot(axes: Axes) -> None:
        others, own = draws[~is_divergent], draws[is_divergent]
        axes.plot(others[first], others[second], ".", color=MUTED, markersize=2, alpha=0.5)
        axes.plot(own[first], own[second], "o", color=series(3), markersize=3)
        axes.set(xlabel=first, ylabel=second)

    words = f"{first} and {second}: {int(is_divergent.sum())} divergent draws and {int((~is_divergent).sum())} others"
    return draw(f"divergent-{first}-{second}", plot, size=(340, 280), label=words, title=f"{first} and {second}")
