"""Say at the top of a page whether the model fits the data, as far as checks were asked for, and what follows if it does not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from bayesmesh.config.declarations import list_analyses
from bayesmesh.figures import formats
from bayesmesh.figures.figure_fit_check import Aspect, FitCheck
from bayesmesh.store.stored_description import ModelDescription

_BADGES = {
    "fail": ("fail", "✗ refuted"),
    "warn": ("warn", "! doubtful"),
    "pass": ("pass", "✓ not refuted"),
    "none": ("none", "not checked"),
}

_CONSEQUENCES: Mapping[Aspect, str] = {
    "narrow": "Outcomes scatter {times} the model allows. Intervals on this page assume the smaller scatter and are likely too narrow{rule}.",
    "wide": "Outcomes scatter less than the model says. Intervals on this page assume the larger scatter and are likely too wide.",
    "uneven": "The scatter of outcomes varies between rows in a way that the model does not capture: intervals are likely too narrow for some quantities and "
    "too wide for others.",
    "bias": "Predicted means are wrong for some rows: estimates may be biased, which wider intervals do not fix.",
    "tails": "Extreme outcomes are more frequent than the model allows, and single rows pull the estimates.",
    "zeros": "There are more zeros than the model allows, so predicted probabilities of zero are too small.",
    "shape": "The outcomes have a distribution of another shape, so predicted probabilities are wrong.",
}
"""Way in which predictions are wrong -> what follows, the most serious first; ``{times}`` and ``{rule}`` say how much, where it is known."""

MOST_GROUPS = 6
"""Columns that a remedy names."""

_GROUP = "(1 | group)"

_ORDER: tuple[Aspect, ...] = ("bias", "narrow", "wide", "uneven", "tails", "zeros", "shape")

_OF_SPREAD: tuple[Aspect, ...] = ("tails", "zeros", "shape")

_REMEDIES: Mapping[Aspect, str] = {
    "bias": "Look for predictors, nonlinear effects or interactions that the model lacks.",
    "narrow": "Use an outcome distribution whose spread has its own parameter.",
    "wide": "Use an outcome distribution whose spread has its own parameter.",
    "uneven": "Let the spread vary between rows, or transform the outcome.",
    "tails": "Use an outcome distribution with heavier tails.",
    "zeros": "Use an outcome distribution with more zeros.",
    "shape": "Use another outcome distribution, or transform the outcome.",
}
"""Way in which predictions are wrong -> what to try, where the model does not say it."""


@dataclasses.dataclass(frozen=True)
class FitMark:
    """What is said about the fit, beside the verdict on the sampling.

    Attributes:
        state: colour: fail, warn, pass, or none where nothing was checked.
        badge: its words.
        lead: the result in a sentence.
        findings: what each check that did not pass found.
        consequences: what follows for the numbers of the page, and what does not.
        remedies: what to try.
        caveat: what must stand beside the intervals; empty if nothing.
        widening: how many times as wide intervals should be; NaN if that is not known.
    """

    state: str
    badge: str
    lead: str
    findings: Sequence[str] = ()
    consequences: Sequence[str] = ()
    remedies: Sequence[str] = ()
    caveat: str = ""
    widening: float = math.nan


def mark_fit(
    checks: Sequence[FitCheck],
    asked: Collection[str],
    description: ModelDescription,
    groups: Mapping[str, int] = MappingProxyType({}),
) -> FitMark:
    """Return the mark for the fit of the model.

    Args:
        checks: results of all checks.
        asked: names of the analyses that the experiment asks for.
        description: of the model, which names remedies.
        groups: columns whose levels the model does not use, which may be the groups of a remedy -> number of levels.
    """
    if not checks:
        return FitMark(*_BADGES["none"], _not_checked(asked))
    missed = [each for each in checks if each.state != "pass"]
    worst = "fail" if any(each.state == "fail" for each in missed) else "warn" if missed else "pass"
    refuted: set[Aspect] = {aspect for each in missed for aspect in each.refuted}
    cleared: set[Aspect] = {aspect for each in checks for aspect in each.cleared} - refuted
    # What follows from too narrow a spread anyway is not said twice.
    ordered = [each for each in _ORDER if each in refuted and not (each in _OF_SPREAD and "narrow" in refuted)]
    spread = next((each.spread for each in missed if math.isfinite(each.spread)), math.nan)
    follows = [_consequence(aspect, spread) for aspect in ordered]
    if refuted and "bias" in cleared:
        follows.append("The checks of means found no bias. They do not test every estimate.")
    proposed = [description.remedies.get(aspect, _REMEDIES[aspect]) for aspect in ordered]
    remedies = [_with_groups(each, groups) for each in proposed]
    lead = _lead(worst, checks)
    if worst != "fail" and (more := [name for name in _judging() if name not in asked]):
        lead += f" Add {_keys(more)} to check more."
    caveat = " ".join(follows) if worst == "fail" else ""
    return FitMark(
        *_BADGES[worst],
        lead,
        [each.text for each in missed if each.text],
        follows,
        [*dict.fromkeys(remedies)],
        caveat,
        spread if "narrow" in refuted and spread > 1 else math.nan,
    )


def _consequence(aspect: Aspect, spread: float) -> str:
    """Return what follows, with how much too narrow intervals are, where it is known.

    Standard errors of a generalised linear model grow with the spread of the outcomes (McCullagh and Nelder 1989, section 9.2).
    """
    if aspect != "narrow" or not spread > 1:
        return _CONSEQUENCES[aspect].format(times="more widely than", rule="")
    by = formats.real(spread, 2)
    rule = f"; as a rule of thumb, they should be {by} times as wide if rows are independent, and wider still if rows come in groups"
    return _CONSEQUENCES[aspect].format(times=f"about {by} times as widely as", rule=rule)


def _with_groups(remedy: str, groups: Mapping[str, int]) -> str:
    """Name the columns that may be the group of a remedy, or say that there are none."""
    if _GROUP not in remedy:
        return remedy
    if not groups:
        return f"{remedy} The data have no unused column that could name groups."
    first = next(iter(groups))
    named = [f"`{name}` ({formats.count(levels)} levels)" for name, levels in [*groups.items()][:MOST_GROUPS]]
    which = f"{'Columns' if len(groups) > 1 else 'The column'} of the data that could name groups: {', '.join(named)}"
    return f"{remedy.replace(_GROUP, f'(1 | {first})')} {which}{' and more' if len(groups) > len(named) else ''}."


def _judging() -> list[str]:
    """Return the analyses that say whether the data refute the model."""
    return [each.name for each in list_analyses() if each.checks_model]


def _lead(worst: str, checks: Sequence[FitCheck]) -> str:
    names = {
        state: _listed([each.name for each in checks if each.state == state]) for state in ("fail", "warn", "pass")
    }
    if worst == "fail":
        return f"The data refute the model ({names['fail']})."
    if worst == "warn":
        return f"No check refutes the model, but there are doubts ({names['warn']})."
    return f"No check refutes the model ({names['pass']})."


def _listed(names: Sequence[str]) -> str:
    unique = [*dict.fromkeys(names)]
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} and {unique[-1]}" if unique else ""


def _keys(names: Sequence[str]) -> str:
    return _listed([f"`{name}: {{}}`" for name in names])


def _not_checked(asked: Collection[str]) -> str:
    if any(name in asked for name in _judging()):
        return "The requested checks have no results."
    return (
        f"No check of the model's fit was requested. Add {_keys(_judging())} to the experiment: these checks use the same draws, "
        "without sampling again."
    )
