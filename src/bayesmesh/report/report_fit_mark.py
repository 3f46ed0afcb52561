"""Summarise the fit of the model at the top of a page: results of the requested checks, consequences, remedies."""

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
"""Misfit -> its consequence; ``{times}`` and ``{rule}`` are filled with its size, if known."""

MOST_GROUPS = 6
"""Largest number of columns that a remedy names."""

_GROUP = "(1 | group)"

_ORDER: tuple[Aspect, ...] = ("bias", "narrow", "wide", "uneven", "tails", "zeros", "shape")
"""Misfits, the most serious first."""

_OF_SPREAD: tuple[Aspect, ...] = ("tails", "zeros", "shape")
"""Misfits that too narrow a spread also causes."""

_REMEDIES: Mapping[Aspect, str] = {
    "bias": "Look for predictors, nonlinear effects or interactions that the model lacks.",
    "narrow": "Use an outcome distribution whose spread has its own parameter.",
    "wide": "Use an outcome distribution whose spread has its own parameter.",
    "uneven": "Let the spread vary between rows, or transform the outcome.",
    "tails": "Use an outcome distribution with heavier tails.",
    "zeros": "Use an outcome distribution with more zeros.",
    "shape": "Use another outcome distribution, or transform the outcome.",
}
"""Misfit -> remedy, unless the model names its own."""


@dataclasses.dataclass(frozen=True)
class FitMark:
    """The summary of the fit, beside the verdict on the sampling.

    Attributes:
        state: fail, warn or pass, or none if nothing was checked; sets the colour.
        badge: text of the badge.
        lead: the result in a sentence or two.
        findings: finding of each check that did not pass.
        consequences: consequences for the numbers of the page, and a note if means were checked and are unbiased.
        remedies: changes of the model to try.
        caveat: text that must accompany the intervals; empty unless the data refute the model.
        widening: factor by which intervals are too narrow; NaN if unknown.
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
    """Return the summary of the fit of the model.

    Args:
        checks: results of all checks.
        asked: names of the requested analyses.
        description: the model's description of itself, which may name remedies.
        groups: column -> number of levels, for columns that the model does not use and that may be groups of a remedy.
    """
    if not checks:
        return FitMark(*_BADGES["none"], _not_checked(asked))
    missed = [each for each in checks if each.state != "pass"]
    worst = "fail" if any(each.state == "fail" for each in missed) else "warn" if missed else "pass"
    refuted: set[Aspect] = {aspect for each in missed for aspect in each.refuted}
    cleared: set[Aspect] = {aspect for each in checks for aspect in each.cleared} - refuted
    # Too narrow a spread explains misfits of tails, zeros and shape; reporting them too would count one defect twice.
    ordered = [each for each in _ORDER if each in refuted and not (each in _OF_SPREAD and "narrow" in refuted)]
    spread = next((each.spread for each in missed if "narrow" in each.refuted and each.spread > 1), math.nan)
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
        spread,
    )


def _consequence(aspect: Aspect, spread: float) -> str:
    """Return the consequence of a misfit, with the factor by which intervals are too narrow, if known.

    Standard errors of a generalised linear model are proportional to the spread of the outcomes (McCullagh and Nelder
    1989, section 9.2).
    """
    if aspect != "narrow" or math.isnan(spread):
        return _CONSEQUENCES[aspect].format(times="more widely than", rule="")
    by = formats.real(spread, 2)
    rule = f"; as a rule of thumb, they should be {by} times as wide if rows are independent, and wider still if rows come in groups"
    return _CONSEQUENCES[aspect].format(times=f"about {by} times as widely as", rule=rule)


def _with_groups(remedy: str, groups: Mapping[str, int]) -> str:
    """Return a remedy with the columns that could be its groups, or with a note that there are none."""
    if _GROUP not in remedy:
        return remedy
    if not groups:
        return f"{remedy} The data have no unused column that could name groups."
    first = next(iter(groups))
    named = [f"`{name}` ({formats.count(levels)} levels)" for name, levels in [*groups.items()][:MOST_GROUPS]]
    which = f"{'Columns' if len(groups) > 1 else 'The column'} of the data that could name groups: {', '.join(named)}"
    return f"{remedy.replace(_GROUP, f'(1 | {first})')} {which}{' and more' if len(groups) > len(named) else ''}."


def _judging() -> list[str]:
    """Return the names of the analyses that check whether the data refute the model."""
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
