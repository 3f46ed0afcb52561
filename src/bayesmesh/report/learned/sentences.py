"""Write the sentences that intervals support, and no others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from bayesmesh.analyses.figures import formats
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.learned.estimates import Estimate

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


def say_sides(estimates: Sequence[Estimate], names: Mapping[str, str]) -> str:
    """Return a sentence on the intervals that exclude their reference; empty without references.

    Args:
        estimates: estimates of one finding, all with the same reference or None.
        names: label -> name of the coordinate in sentences.
    """
    compared = [each for each in estimates if each.reference is not None and math.isfinite(each.low)]
    if not compared:
        return ""
    above, below = ([each for each in compared if each.side == side] for side in (1, -1))
    rest, value = len(compared) - len(above) - len(below), formats.real(compared[0].reference)
    if len(compared) == 1:
        where = {1: f"lies above {value}", -1: f"lies below {value}", 0: f"contains {value}"}[compared[0].side]
        return f"The 90% interval of {_named(compared, names)} {where}."
    if rest == len(compared):
        return f"None of the {formats.count(rest)} intervals (90%) excludes {value}."
    parts = [
        f"{_intervals_of(side, names)} {'lie' if len(side) > 1 else 'lies'} {word} {value}"
        for side, word in ((above, "above"), (below, "below"))
        if side
    ]
    parts += [f"{formats.count(rest)} {'contain' if rest > 1 else 'contains'} it"] if rest else []
    return f"90% intervals: {', '.join(parts)}. They are not adjusted for multiple comparisons."


def say_truth(estimates: Sequence[Estimate]) -> str:
    """Return a sentence on the number of intervals that contain the true value; empty if fewer than `FEWEST_KNOWN` are known.

    The number is not compared with 90%, because the intervals of one posterior are not independent.
    """
    known = [each for each in estimates if math.isfinite(each.truth) and math.isfinite(each.low)]
    if len(known) < FEWEST_KNOWN:
        return ""
    inside = sum(each.contains_truth for each in known)
    return f"{formats.count(inside)} of {formats.count(len(known))} intervals (90%) contain the value that generated the data."


def say_unsettled(estimates: Sequence[Estimate], verdict: Verdict) -> str:
    """Return a sentence on the number of coordinates with R-hat above the limit of the gate; empty without any."""
    count = sum(is_unsettled(each, verdict) for each in estimates)
    if not count:
        return ""
    limit, of = formats.real(r_hat_limit(verdict), 3), formats.count(len(estimates))
    return f"For {formats.count(count)} of these {of}, R-hat is above {limit}: chains disagree by more than the errors suggest."


def is_unsettled(each: Estimate, verdict: Verdict) -> bool:
    """Return whether R-hat of a coordinate is above the limit; False for NaN, as for one chain or constant draws."""
    return each.item.r_hat > r_hat_limit(verdict)


def r_hat_limit(verdict: Verdict) -> float:
    """Return the limit of the gate on R-hat, or `DEFAULT_R_HAT` without one."""
    gate = verdict.gate("r_hat")
    return gate.limit if gate else DEFAULT_R_HAT


def _intervals_of(side: Sequence[Estimate], names: Mapping[str, str]) -> str:
    """Return the intervals of coordinates in words, by name or, if there are many, by number."""
    if len(side) > MOST_NAMED:
        return _named(side, names)
    return f"{'those' if len(side) > 1 else 'that'} of {_named(side, names)}"


def _named(side: Sequence[Estimate], names: Mapping[str, str]) -> str:
    """Return the names of coordinates, or their number if there are more than `MOST_NAMED`.

    Those farthest from the reference, in standard deviations, come first.
    """
    if len(side) > MOST_NAMED:
        return formats.count(len(side))
    ordered = sorted(side, key=lambda each: -abs(each.item.mean - (each.reference or 0.0)) / (each.item.sd or 1.0))
    called = [names.get(each.item.label, each.item.label) for each in ordered]
    return called[0] if len(called) == 1 else f"{', '.join(called[:-1])} and {called[-1]}"
