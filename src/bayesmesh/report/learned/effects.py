"""Describe the effects of changes in predictors on the outcome, from intervals of their coefficients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bayesmesh.analyses.figures import formats
from bayesmesh.report.learned.estimates import Estimate
from bayesmesh.store.posterior.description import Change, Effects

MOST_SENTENCES = 4

_SMALL = (0.5, 2.0)
"""Range of factors that sentences give as percentages."""


@dataclasses.dataclass(frozen=True)
class ShownChange:
    """A change of a predictor, with its effect.

    Attributes:
        words: description of the change.
        of: quantity that it acts on.
        median, low, high: median and ends of the 90% interval of the factor, or of the difference.
        side: 1 if the interval lies above the null value (a factor of 1, a difference of 0), -1 if below, 0 if it
            contains it.
        wide: ends of the interval, widened as checks of the fit suggest; the same interval without such a suggestion.
    """

    words: str
    of: str
    median: float
    low: float
    high: float
    side: int
    wide: tuple[float, float] = (math.nan, math.nan)

    @property
    def texts(self) -> tuple[str, str, str]:
        """Median and ends of the interval, rounded to a tenth of its width."""
        error = (self.high - self.low) / 10
        median, low, high = (formats.to_error(value, error) for value in (self.median, self.low, self.high))
        return median, low, high


@dataclasses.dataclass(frozen=True)
class ShownEffects:
    """Changes of predictors as the template shows them.

    Attributes:
        verb: heading of the column of numbers.
        has_of: whether changes act on different quantities, so that the table needs a column for them.
        rows: rows of the table.
        sentences: sentences on the effects; empty if the verdict does not allow any.
        note: note on how the numbers follow from coefficients.
        robustness: sentence on the first clear effect at the wider interval; empty if no check suggests a wider one.
    """

    verb: str
    has_of: bool
    rows: Sequence[ShownChange]
    sentences: Sequence[str]
    note: str
    robustness: str = ""


def build_effects(
    effects: Effects | None, estimates: Sequence[Estimate], *, may_speak: bool, widening: float = math.nan
) -> ShownEffects | None:
    """Return the effects of changes in predictors; None if no estimate is the coefficient of a change.

    Args:
        effects: description of effects by the model, or None.
        estimates: estimates of all findings.
        may_speak: whether the verdict allows sentences on the intervals.
        widening: factor by which intervals are too narrow; NaN if unknown.
    """
    if effects is None:
        return None
    rows: list[ShownChange] = []
    spoken: dict[tuple[str, str], list[ShownChange]] = {}
    for each in estimates:
        for change in effects.changes:
            level = _level_of(each, change, effects)
            if level is not None and math.isfinite(each.median):
                row = _change(effects, change, each, effects.of.replace("{level}", level), widening)
                rows.append(row)
                spoken.setdefault((change.summary, each.item.label), []).append(row)
    if not rows:
        return None
    is_ratio, of = effects.scale == "ratio", {row.of for row in rows}
    what = f" {rows[0].of}" if len(of) == 1 else ""
    verb = f"Multiplies{what} by" if is_ratio else f"Adds to{what}" if what else "Adds"
    note = (
        "Exponentials of coefficients: medians and 90% intervals of the draws. The factor is the same whatever the values of the "
        "other predictors; twice the change multiplies by its square."
        if is_ratio
        else "Medians and 90% intervals of the draws, in the unit of the outcome."
    )
    note += " Predictors that occur in several terms are left out: no single coefficient gives their effect."
    said = _sentences([*spoken.values()], is_ratio=is_ratio) if may_speak else []
    clear = [several[0] for several in spoken.values() if several[0].side]
    if said and clear and math.isfinite(widening):
        said.insert(min(len(clear), MOST_SENTENCES), _say_what_stays(clear, widening, is_ratio=is_ratio))
        first = _widen(clear[0], widening, is_ratio=is_ratio)
    else:
        first = ""
    return ShownEffects(verb, len(of) > 1, rows, said, note, first)


def _level_of(each: Estimate, change: Change, effects: Effects) -> str | None:
    """Return the outcome level of a coefficient, empty for an outcome without levels; None for another coefficient."""
    names = each.item.names
    if each.item.variable != change.summary:
        return None
    if "{level}" not in effects.of:
        return "" if names == change.entry else None
    if not change.entry:
        return names
    # Names of levels may contain commas: of the entries that a name may begin with, the longest is its own.
    begins = {c.entry for c in effects.changes if c.summary == change.summary and names.startswith(f"{c.entry},")}
    return names[len(change.entry) + 1 :] if change.entry == max(begins, key=len, default=None) else None


def _change(effects: Effects, change: Change, each: Estimate, of: str, widening: float) -> ShownChange:
    median, low, high = (change.factor * value for value in (each.median, each.low, each.high))
    side = int(low > 0) - int(high < 0)
    times = widening if math.isfinite(widening) else 1.0
    values = [median, low, high, median + times * (low - median), median + times * (high - median)]
    if effects.scale == "ratio":
        values = [math.exp(min(value, 700.0)) for value in values]
    median, low, high, *wide = values
    return ShownChange(change.words, of, median, low, high, side, (wide[0], wide[1]))


def _sentences(changes: Sequence[Sequence[ShownChange]], *, is_ratio: bool) -> list[str]:
    """Return sentences on the changes whose interval excludes the null value, and on the number of the others.

    Args:
        changes: for each coefficient, its changes, which have the same side.
        is_ratio: whether changes multiply, so that the null value is 1 instead of 0.
    """
    rows = [several[0] for several in changes]
    clear = [several for several in changes if several[0].side]
    said = [_sentence(several, is_ratio=is_ratio) for several in clear[:MOST_SENTENCES]]
    of = rows[0].of if len({row.of for row in rows}) == 1 else "them"
    rest, none = len(clear) - len(said), len(rows) - len(clear)
    if rest:
        which = (
            "interval of 1 more change excludes"
            if rest == 1
            else f"intervals of {formats.count(rest)} more changes exclude"
        )
        said.append(f"The {which} {1 if is_ratio else 0}.")
    if none:
        which, does = f"The intervals of {formats.count(none)} changes contain", "whether they raise or lower"
        if none == 1:
            which, does = (
                f"The interval of {'the other' if clear else 'the'} change contains",
                "whether it raises or lowers",
            )
        said.append(f"{which} {1 if is_ratio else 0}: the data do not say {does} {of}.")
    return said


def _say_what_stays(clear: Sequence[ShownChange], widening: float, *, is_ratio: bool) -> str:
    """Return a sentence on the changes whose intervals would still exclude the null value if they were wider."""
    none = 1.0 if is_ratio else 0.0
    lost = [row.words for row in clear if row.wide[0] <= none <= row.wide[1]]
    if len(clear) == 1:
        return _widen(clear[0], widening, is_ratio=is_ratio)
    wider = f"{formats.real(widening, 2)} times as wide, as the misfit suggests"
    if not lost:
        return f"If these intervals were {wider}, all {formats.count(len(clear))} would still show the direction of the effect."
    which = ", ".join(lost[:MOST_SENTENCES]) + (" and others" if len(lost) > MOST_SENTENCES else "")
    return f"If these intervals were {wider}, {formats.count(len(clear) - len(lost))} of {formats.count(len(clear))} would still show the direction of the effect, but not: {which}."


def _widen(row: ShownChange, widening: float, *, is_ratio: bool) -> str:
    """Return a sentence with the widened interval of a change, and whether it still excludes the null value."""
    low, high = row.wide
    wider, none = dataclasses.replace(row, low=low, high=high), 1 if is_ratio else 0
    as_share = _as_shares([row, wider], is_ratio=is_ratio)
    _, first, last = _shares(wider) if as_share else wider.texts
    excludes = f"{'no longer' if low <= none <= high else 'still'} excludes {0 if as_share else none}"
    return f"At {formats.real(widening, 2)} times its width, as the misfit suggests, the interval is {first} to {last} and {excludes}."


def _as_shares(changes: Sequence[ShownChange], *, is_ratio: bool) -> bool:
    """Return whether changes are small enough to be given as percentages."""
    return is_ratio and all(_SMALL[0] < end < _SMALL[1] for each in changes for end in (each.low, each.high))


def _sentence(changes: Sequence[ShownChange], *, is_ratio: bool) -> str:
    """Return a sentence on the effects of one coefficient's changes, as percentages if they are small."""
    first = changes[0]
    as_share = _as_shares(changes, is_ratio=is_ratio)
    if as_share:
        verb, to = f"{'raises' if first.side > 0 else 'lowers'} {first.of} by", ""
    else:
        verb, to = (f"multiplies {first.of} by", "") if is_ratio else ("adds", f" to {first.of}")
    parts = []
    for n, each in enumerate(changes):
        median, low, high = _shares(each) if as_share else each.texts
        interval = f"{'90% interval ' if n == 0 else ''}{low} to {high}"
        parts.append(
            f"{each.words} {verb if n == 0 else 'by' if is_ratio else 'adds'} {median}{to if n == 0 else ''} ({interval})"
        )
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _shares(row: ShownChange) -> list[str]:
    """Return the percentage by which a change raises or lowers its quantity, and the interval's ends, ascending."""
    ends = sorted([row.side * (row.low - 1), row.side * (row.high - 1)])
    values = [row.side * (row.median - 1), *ends]
    return [f"{formats.to_error(100 * value, 10 * (ends[1] - ends[0]))}%" for value in values]


def meanings_of(names: Sequence[str], meanings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names that the model explains, each once, with their meanings."""
    return [(name, meanings[name]) for name in dict.fromkeys(names) if name in meanings]
