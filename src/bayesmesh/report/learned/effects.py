"""Describe the effects of changes in predictors on the outcome, from the comparisons that the posterior holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bayesmesh.analyses.figures import formats

MOST_SENTENCES = 4

_SMALL = (0.5, 2.0)
"""Range of factors that sentences give as percentages."""


@dataclasses.dataclass(frozen=True)
class ShownChange:
    """A change of a predictor, with its effect.

    Attributes:
        predictor: the predictor, with the level that it is changed to.
        words: description of the change.
        of: quantity that it acts on.
        is_ratio: whether it multiplies, so that the null value is 1 instead of 0.
        mean, low, high: mean and ends of the 90% interval of the factor, or of the difference.
        mcse: Monte Carlo standard error of the mean.
        side: 1 if the interval lies above the null value, -1 if below, 0 if it contains it.
        wide: ends of the interval, widened as checks of the fit suggest; the same interval without such a suggestion.
    """

    predictor: str
    words: str
    of: str
    is_ratio: bool
    mean: float
    low: float
    high: float
    mcse: float
    side: int
    wide: tuple[float, float]

    @property
    def texts(self) -> tuple[str, str, str]:
        """Mean and ends of the interval, rounded to a tenth of its width, or further so that no end reads as the null value."""
        width, nearest = self.high - self.low, min(abs(end - self.is_ratio) for end in (self.low, self.high))
        error = min(width / 10, max(nearest, width / 1000))
        mean, low, high = (formats.to_error(value, error) for value in (self.mean, self.low, self.high))
        return mean, low, high

    @property
    def is_share(self) -> bool:
        """Whether it is a factor so near to 1 that sentences give a percentage."""
        return self.is_ratio and all(_SMALL[0] < end < _SMALL[1] for end in (self.low, self.high))

    @property
    def stays(self) -> bool:
        """Whether the widened interval still excludes the null value."""
        return not self.wide[0] <= self.is_ratio <= self.wide[1]


@dataclasses.dataclass(frozen=True)
class ShownEffects:
    """Changes of predictors as the template shows them.

    Attributes:
        rows: rows of the table.
        sentences: sentences on the effects; empty if the verdict does not allow any.
        robustness: sentence on the first clear effect at the wider interval; empty if no check suggests a wider one.
    """

    rows: Sequence[ShownChange]
    sentences: Sequence[str]
    robustness: str = ""


def build_effects(described: object, *, may_speak: bool, widening: float = math.nan) -> ShownEffects | None:
    """Return the effects of changes in predictors; None for a posterior that describes none.

    Args:
        described: comparisons, as `bayesmesh.analyses.effects.comparisons` describes them.
        may_speak: whether the verdict allows sentences on the intervals.
        widening: factor by which intervals are too narrow; NaN if unknown.
    """
    if not isinstance(described, list) or not described:
        return None
    is_wider = math.isfinite(widening)
    rows = [_change(each, widening if is_wider else 1.0) for each in described]
    if not may_speak:
        return ShownEffects(rows, [])
    # A factor is the same, or nearly so, in all rows, so sentences prefer it to a difference.
    factors = {row.predictor for row in rows if row.is_ratio}
    spoken: dict[tuple[str, str], list[ShownChange]] = {}
    for row in rows:
        if row.is_ratio == (row.predictor in factors):
            spoken.setdefault((row.predictor, row.of), []).append(row)
    sentences = _sentences([*spoken.values()])
    clear = [several[0] for several in spoken.values() if several[0].side]
    if not clear or not is_wider:
        return ShownEffects(rows, sentences)
    sentences.insert(min(len(clear), MOST_SENTENCES), _say_what_stays(clear, widening))
    return ShownEffects(rows, sentences, _widen(clear[0], widening))


def _change(described: Mapping[str, Any], times: float) -> ShownChange:
    mean, low, high, mcse = (described[name] for name in ("mean", "low", "high", "mcse_mean"))
    side, is_ratio = int(low > 0) - int(high < 0), described["is_ratio"]
    values = [mean, low, high, mean + times * (low - mean), mean + times * (high - mean)]
    if is_ratio:
        values = [math.exp(min(value, 700.0)) for value in values]
        mcse *= values[0]
    mean, low, high, *wide = values
    return ShownChange(
        described["predictor"], described["change"], described["of"], is_ratio, mean, low, high, mcse, side, (wide[0], wide[1])
    )  # fmt: skip


def _sentences(changes: Sequence[Sequence[ShownChange]]) -> list[str]:
    """Return sentences on the changes whose interval excludes the null value, and on the number of the others.

    Args:
        changes: for each predictor, or level of one, its changes.
    """
    clear = [several for several in changes if several[0].side]
    found = [_sentence(several) for several in clear[:MOST_SENTENCES]]
    rest, none = len(clear) - len(found), len(changes) - len(clear)
    if rest:
        have = "change has" if rest == 1 else "changes have"
        found.append(f"{formats.count(rest)} more {have} an effect whose interval shows its direction.")
    if none:
        which = f"intervals of {formats.count(none)} {'other ' if clear else ''}changes do"
        found.append(
            f"The {'interval of one ' + ('other ' if clear else '') + 'change does' if none == 1 else which} not show a direction."
        )
    return found


def _say_what_stays(clear: Sequence[ShownChange], widening: float) -> str:
    """Return a sentence on the changes whose intervals would still exclude the null value if they were wider."""
    if len(clear) == 1:
        return _widen(clear[0], widening)
    lost = [row.words for row in clear if not row.stays]
    wider = f"{formats.real(widening, 2)} times as wide, as the misfit suggests"
    if not lost:
        return f"If these intervals were {wider}, all {formats.count(len(clear))} would still show the direction of the effect."
    which = ", ".join(lost[:MOST_SENTENCES]) + (" and others" if len(lost) > MOST_SENTENCES else "")
    return f"If these intervals were {wider}, {formats.count(len(clear) - len(lost))} of {formats.count(len(clear))} would still show the direction of the effect, but not: {which}."


def _widen(row: ShownChange, widening: float) -> str:
    """Return a sentence with the widened interval of a change, and whether it still excludes the null value."""
    low, high = row.wide
    wider = dataclasses.replace(row, low=low, high=high)
    as_share = row.is_share and wider.is_share
    _, first, last = _shares(wider) if as_share else wider.texts
    excludes = f"{'still' if row.stays else 'no longer'} excludes {int(row.is_ratio and not as_share)}"
    return f"At {formats.real(widening, 2)} times its width, as the misfit suggests, the interval is {first} to {last} and {excludes}."


def _sentence(changes: Sequence[ShownChange]) -> str:
    """Return a sentence on the effects of one predictor's changes, as percentages if they are small."""
    first = changes[0]
    as_share = all(each.is_share for each in changes)
    if as_share:
        verb, to = f"{'raises' if first.side > 0 else 'lowers'} {first.of} by", ""
    else:
        verb, to = (f"multiplies {first.of} by", "") if first.is_ratio else ("adds", f" to {first.of}")
    parts = []
    for n, each in enumerate(changes):
        mean, low, high = _shares(each) if as_share else each.texts
        again = "by" if first.is_ratio else "adds"
        parts.append(
            f"{each.words} {verb} {mean}{to} on average (90% interval {low} to {high})"
            if n == 0
            else f"{each.words} {again} {mean} ({low} to {high})"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _shares(row: ShownChange) -> list[str]:
    """Return the percentage by which a change raises or lowers its quantity, and the interval's ends, ascending."""
    ends = sorted([row.side * (row.low - 1), row.side * (row.high - 1)])
    values = [row.side * (row.mean - 1), *ends]
    return [f"{formats.to_error(100 * value, 10 * (ends[1] - ends[0]))}%" for value in values]


def meanings_of(names: Sequence[str], meanings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names that the model explains, each once, with their meanings."""
    return [(name, meanings[name]) for name in dict.fromkeys(names) if name in meanings]
