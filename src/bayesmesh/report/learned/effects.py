"""Say what changes of predictors do to the outcome, from the intervals of their coefficients."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from bayesmesh.figures import formats
from bayesmesh.report.learned.estimates import Estimate
from bayesmesh.store.model_description import Effects

MOST_SENTENCES = 4

_DIGITS = 3


@dataclasses.dataclass(frozen=True)
class ShownChange:
    """A change of a predictor.

    Attributes:
        words: the change.
        of: what it acts on.
        median, low, high: by what it multiplies that, or what it adds.
        side: 1 where the interval lies above no effect, -1 below, 0 where it contains it.
    """

    words: str
    of: str
    median: float
    low: float
    high: float
    side: int


@dataclasses.dataclass(frozen=True)
class ShownEffects:
    """Changes of predictors as the template shows them.

    Attributes:
        verb: heading of the column of numbers.
        has_of: whether changes act on different things, which the table then says.
        rows: of the table.
        sentences: of changes whose interval excludes no effect.
        note: how the numbers follow from coefficients.
    """

    verb: str
    has_of: bool
    rows: Sequence[ShownChange]
    sentences: Sequence[str]
    note: str


def build_effects(effects: Effects | None, estimates: Sequence[Estimate], *, may_speak: bool) -> ShownEffects | None:
    """Return what changes of predictors do; None where no coefficient says it.

    Args:
        effects: as the model describes them.
        estimates: of all findings.
        may_speak: whether sentences may be made of the intervals.
    """
    if effects is None:
        return None
    rows: list[ShownChange] = []
    spoken: dict[tuple[str, str], ShownChange] = {}
    for each in estimates:
        for change in effects.changes:
            level = _level_of(each, change.summary, change.entry)
            if level is not None and math.isfinite(each.median):
                row = _change(effects, change.words, change.factor, each, effects.of.replace("{level}", level))
                rows.append(row)
                spoken.setdefault((change.summary, each.item.label), row)
    if not rows:
        return None
    is_ratio, of = effects.scale == "ratio", {row.of for row in rows}
    what = f" {rows[0].of}" if len(of) == 1 else ""
    verb = f"Multiplies{what} by" if is_ratio else f"Adds to{what}" if what else "Adds"
    note = (
        "Exponentials of coefficients, as medians and 90% intervals of the draws: a change multiplies by the same factor wherever the "
        "other predictors are, and twice the change by its square."
        if is_ratio
        else "Medians and 90% intervals of the draws, in the unit of the outcome."
    )
    note += " Predictors in several terms are left out: no single coefficient says what a change of them does."
    said = _sentences([*spoken.values()], is_ratio=is_ratio) if may_speak else []
    return ShownEffects(verb, len(of) > 1, rows, said, note)


def _level_of(each: Estimate, summary: str, entry: str) -> str | None:
    """Return the level of the outcome of a coefficient, empty of an outcome without levels; None if it is another one."""
    if each.item.variable != summary:
        return None
    if each.item.names == entry:
        return ""
    head, comma, level = each.item.names.rpartition(",")
    return level if (comma and head == entry) or (not comma and not entry) else None


def _change(effects: Effects, words: str, factor: float, each: Estimate, of: str) -> ShownChange:
    median, low, high = (factor * value for value in (each.median, each.low, each.high))
    side = int(low > 0) - int(high < 0)
    if effects.scale == "ratio":
        median, low, high = (math.exp(min(value, 700.0)) for value in (median, low, high))
    return ShownChange(words, of, median, low, high, side)


def _sentences(rows: Sequence[ShownChange], *, is_ratio: bool) -> list[str]:
    """Return sentences on the changes whose interval excludes no effect, and how many there are besides."""
    clear = [row for row in rows if row.side]
    said = []
    for row in clear[:MOST_SENTENCES]:
        median, low, high = (formats.real(value, _DIGITS) for value in (row.median, row.low, row.high))
        what = f"multiplies {row.of} by {median}" if is_ratio else f"adds {median} to {row.of}"
        said.append(f"{row.words[0].upper()}{row.words[1:]} {what} (90% interval {low} to {high}).")
    of = rows[0].of if len({row.of for row in rows}) == 1 else "them"
    rest, none = len(clear) - len(said), len(rows) - len(clear)
    if rest:
        said.append(f"The intervals of {formats.count(rest)} more changes exclude {1 if is_ratio else 0}.")
    if none:
        which, does = f"The intervals of {formats.count(none)} changes contain", "whether they raise or lower"
        if none == 1:
            which, does = (
                f"The interval of {'the other' if clear else 'the'} change contains",
                "whether it raises or lowers",
            )
        said.append(f"{which} {1 if is_ratio else 0}: the data do not say {does} {of}.")
    return said


def meanings_of(names: Sequence[str], meanings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return name and meaning of those names that the model explains, each once."""
    return [(name, meanings[name]) for name in dict.fromkeys(names) if name in meanings]
