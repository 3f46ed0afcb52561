"""Intervals of coordinates, with Monte Carlo errors of some, and the sentences that these support, and no others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.choice import Finding
from bayesmesh.store.posterior.coordinates import coordinate_blocks

INTERVAL = (0.05, 0.95)
"""Probabilities of the quantiles at the ends of a 90% equal-tailed interval."""

READ_BYTES = 64 * 2**20
"""Limit on a block of stored draws, with the data read at a time for it, in bytes."""

MIN_DRAWS = 4
"""Fewest draws per chain for which the ends of an interval get an error."""


class Estimate(NamedTuple):
    """A coordinate with the interval of its draws.

    Attributes:
        item: the coordinate, with mean, standard deviation, quantiles and diagnostics.
        reference: value with which the interval is compared, or None.
        truth: true value, from which the data were simulated; NaN if unknown.
        low_error, high_error: Monte Carlo standard errors of the ends; NaN if they were not computed.
    """

    item: Coordinate
    reference: float | None
    truth: float
    low_error: float = math.nan
    high_error: float = math.nan

    @property
    def low(self) -> float:
        """Lower end of the interval; NaN if a draw is not finite."""
        return self.item.q5

    @property
    def high(self) -> float:
        """Upper end."""
        return self.item.q95

    @property
    def side(self) -> int:
        """1 if the interval lies above the reference, -1 if below, 0 if it contains it or there is none."""
        if self.reference is None:
            return 0
        return int(self.low > self.reference) - int(self.high < self.reference)


def read_draws(
    reader: DrawReader, items: Sequence[Coordinate], block_bytes: int = READ_BYTES
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield draws of coordinates, block by block; coordinates that the posterior lacks are left out.

    Args:
        reader: reader of the posterior.
        items: coordinates of any arrays.
        block_bytes: limit on a block in its stored dtype, together with the data read at a time for it, in bytes.

    Yields:
        Positions in `items`, and their draws times `Coordinate.scale`, float64, shape (chain, draw, coordinate).

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    arrays: dict[tuple[bool, str], list[int]] = {}
    for n, item in enumerate(items):
        arrays.setdefault((item.is_summary, item.variable), []).append(n)
    for (is_summary, variable), places in arrays.items():
        array = reader.find(f"{'summaries' if is_summary else 'posterior'}/{variable}")
        shape = array.shape[2:] if array is not None else ()
        places = [n for n in places if _is_inside(items[n].index, shape)]
        if array is None or not places:
            continue
        flat = np.array([np.ravel_multi_index(items[n].index, shape) if shape else 0 for n in places], np.int64)
        order = np.argsort(flat)
        for part, draws in coordinate_blocks(array, flat[order], block_bytes // 2):
            chosen = [places[n] for n in order[part]]
            yield chosen, draws.astype(np.float64) * [items[n].scale for n in chosen]


def _is_inside(index: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(index) == len(shape) and all(n < length for n, length in zip(index, shape, strict=True))


def errors_of_ends(reader: DrawReader, items: Sequence[Coordinate]) -> dict[Coordinate, tuple[float, float]]:
    """Return the Monte Carlo standard errors of the ends of intervals; none with fewer than `MIN_DRAWS` draws per chain.

    Args:
        reader: reader of the posterior.
        items: coordinates of any arrays; each array is read once.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    from bayesmesh.diagnostics.efficiency import quantile_mcse

    found: dict[Coordinate, tuple[float, float]] = {}
    for places, draws in read_draws(reader, items):
        if draws.shape[1] >= MIN_DRAWS:
            found |= {
                items[n]: (low, high) for n, (low, high) in zip(places, quantile_mcse(draws, INTERVAL).T, strict=True)
            }
    return found


def extremes(means: np.ndarray, most: int) -> np.ndarray:
    """Return the positions of up to `most` of the lowest and the highest means, (coordinate,), by ascending mean.

    NaN comes first.
    """
    order = np.lexsort((means, ~np.isnan(means)))
    return order if len(order) <= most else np.concatenate([order[: most // 2], order[-(most - most // 2) :]])


MOST_NAMED = 8
"""Largest number of coordinates that a sentence names."""

FEWEST_KNOWN = 20
"""Intervals from which their coverage is worth a sentence: of a few, one more or less says nothing."""

DEFAULT_R_HAT = 1.01
"""Limit on R-hat for a verdict without a gate on it."""


def trust(verdict: Verdict) -> str:
    """Return a warning about the numbers of the section; empty if the verdict passes.

    For many datasets, it concerns only those that fail, and is empty if none do.
    """
    if verdict.verdict == "pass":
        return ""
    if verdict.datasets is not None:
        failed = verdict.datasets["fail"]
        return (
            f"Do not trust the numbers of the {'dataset that fails' if failed == 1 else f'{formats.count(failed)} datasets that fail'}, listed below."
            if failed
            else ""
        )
    if verdict.verdict == "warn":
        return "The verdict is a warning: read these numbers with the gates that did not pass in mind."
    return (
        "The verdict is a failure: do not trust these numbers. They are shown to help find the cause, and no statement is "
        "derived from them."
    )


def say_sides(finding: Finding) -> str:
    """Return a sentence on the intervals that exclude the reference of a finding; empty without references."""
    low, high = (finding.coordinates.numbers[name] for name in ("q5", "q95"))
    is_compared = np.isfinite(finding.references) & np.isfinite(low)
    compared = np.flatnonzero(is_compared)
    if not compared.size:
        return ""
    above = np.flatnonzero(is_compared & (low > finding.references))
    below = np.flatnonzero(is_compared & (high < finding.references))
    rest, value = compared.size - above.size - below.size, formats.real(finding.references[compared[0]])
    if compared.size == 1:
        where = f"lies above {value}" if above.size else f"lies below {value}" if below.size else f"contains {value}"
        return f"The 90% interval of {_named(finding, compared)} {where}."
    if rest == compared.size:
        return f"None of the {formats.count(rest)} intervals (90%) excludes {value}."
    parts = [
        f"{_intervals_of(finding, side)} {'lie' if side.size > 1 else 'lies'} {word} {value}"
        for side, word in ((above, "above"), (below, "below"))
        if side.size
    ]
    parts += [f"{formats.count(rest)} {'contain' if rest > 1 else 'contains'} it"] if rest else []
    return f"90% intervals: {', '.join(parts)}. They are not adjusted for multiple comparisons."


def say_truth(finding: Finding, truths: np.ndarray) -> str:
    """Return a sentence on the number of intervals that contain the true value, (coordinate,); empty if fewer than `FEWEST_KNOWN` are known.

    The number is not compared with 90%, because the intervals of one posterior are not independent.
    """
    low, high = (finding.coordinates.numbers[name] for name in ("q5", "q95"))
    known = np.isfinite(truths) & np.isfinite(low)
    if known.sum() < FEWEST_KNOWN:
        return ""
    inside, of = int(((low <= truths) & (truths <= high) & known).sum()), int(known.sum())
    return f"{formats.count(inside)} of {formats.count(of)} intervals (90%) contain the value that generated the data."


def say_unsettled(finding: Finding, verdict: Verdict) -> str:
    """Return a sentence on the number of coordinates with R-hat above the limit of the gate; empty without any."""
    count = int((finding.coordinates.numbers["r_hat"] > r_hat_limit(verdict)).sum())
    if not count:
        return ""
    limit, of = formats.real(r_hat_limit(verdict), 3), formats.count(len(finding.coordinates))
    return f"For {formats.count(count)} of these {of}, R-hat is above {limit}: chains disagree by more than the errors suggest."


def is_unsettled(each: Estimate, verdict: Verdict) -> bool:
    """Return whether R-hat of a coordinate is above the limit; False for NaN, as for one chain or constant draws."""
    return each.item.r_hat > r_hat_limit(verdict)


def r_hat_limit(verdict: Verdict) -> float:
    """Return the limit of the gate on R-hat, or `DEFAULT_R_HAT` without one."""
    gate = verdict.gate("r_hat")
    return gate.limit if gate else DEFAULT_R_HAT


def _intervals_of(finding: Finding, side: np.ndarray) -> str:
    """Return the intervals of some coordinates in words, by name or, if there are many, by number."""
    if side.size > MOST_NAMED:
        return _named(finding, side)
    return f"{'those' if side.size > 1 else 'that'} of {_named(finding, side)}"


def _named(finding: Finding, side: np.ndarray) -> str:
    """Return the names of the coordinates at some positions, or their number if there are more than `MOST_NAMED`.

    Those farthest from the reference, in standard deviations, come first.
    """
    if side.size > MOST_NAMED:
        return formats.count(side.size)
    items = [(finding.coordinates[n], float(finding.references[n])) for n in side.tolist()]
    ordered = sorted(items, key=lambda pair: -abs(pair[0].mean - pair[1]) / (pair[0].sd or 1.0))
    return formats.listed([finding.name(item) for item, _ in ordered])
