"""Summarise the fit of the model at the top of a page: results of the requested checks, consequences, remedies."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Mapping, Sequence

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.sections import Aspect, FitCheck
from bayesmesh.config.declarations import AnalysisDeclaration
from bayesmesh.store.posterior.description import ModelDescription

_BADGES = {
    "fail": ("fail", "✗ refuted"),
    "warn": ("warn", "! doubtful"),
    "pass": ("pass", "✓ not refuted"),
    "none": ("none", "not checked"),
}

_CONSEQUENCES: Mapping[Aspect, str] = {
    "binary": "The model gives probability to outcomes above 1, which do not occur, so predicted probabilities are wrong.",
    "counts": "The outcomes are whole numbers from 0, and the model gives probability to others: predicted probabilities are wrong.",
    "skewed": "The outcomes have a longer upper tail than the model allows: predicted probabilities are wrong, and single rows pull the estimates.",
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

_CAUSES: tuple[Aspect, ...] = ("binary", "counts", "skewed", "wide", "bias")
"""Misfits that cause others, so that what removes them is named first."""

_EXPLAINED: Mapping[Aspect, frozenset[Aspect]] = {
    "binary": frozenset({"counts", "narrow", "wide", "zeros", "tails", "shape", "uneven"}),
    "counts": frozenset({"narrow", "wide", "tails", "shape", "uneven"}),
    "skewed": frozenset({"tails", "shape", "wide", "narrow"}),
    "narrow": frozenset({"shape", "wide"}),
    "zeros": frozenset({"shape"}),
    "tails": frozenset({"shape", "wide"}),
    "uneven": frozenset({"tails", "shape"}),
    "wide": frozenset({"shape", "uneven"}),
}
"""Misfit -> misfits that it also causes, and that are not counted again."""

_REMEDIES: Mapping[Aspect, str] = {
    "binary": "Use a Bernoulli distribution, whose outcomes are 0 or 1.",
    "counts": "Use a distribution of counts.",
    "skewed": "Use the log of the outcome, or a distribution of positive numbers such as the gamma distribution.",
    "bias": "Look for predictors, nonlinear effects or interactions that the model lacks.",
    "narrow": "Use an outcome distribution that scatters more, or look for predictors and groups that the model lacks.",
    "wide": "Use an outcome distribution that scatters less.",
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
    asked: Collection[AnalysisDeclaration],
    description: ModelDescription,
    possible: Collection[str] | None = None,
) -> FitMark:
    """Return the summary of the fit of the model.

    Args:
        checks: results of all checks.
        asked: declarations of the requested analyses.
        description: the model's description of itself, which may name remedies.
        possible: names of the checks that model and data allow; None if not known.
    """
    more = sorted(set(possible or ()) - {each.name for each in asked})
    if not checks:
        return FitMark(*_BADGES["none"], _not_checked(asked, possible, more))
    missed = [each for each in checks if each.state != "pass"]
    worst = "fail" if any(each.state == "fail" for each in missed) else "warn" if missed else "pass"
    refuted: dict[Aspect, float] = {}
    for each in missed:
        refuted.update({k: max(v, refuted.get(k, 0.0)) for k, v in each.refuted.items()})
    cleared: set[Aspect] = {aspect for each in checks for aspect in each.cleared} - refuted.keys()
    explained = {aspect for each in refuted for aspect in _EXPLAINED.get(each, ())}
    ordered = sorted(refuted.keys() - explained, key=lambda each: (each not in _CAUSES, -refuted[each], each))
    spread = next((each.spread for each in missed if "narrow" in each.refuted and each.spread > 1), math.nan)
    follows = [_consequence(aspect, spread) for aspect in ordered]
    if refuted and "bias" in cleared:
        follows.append("The checks of means found no bias. They do not test every estimate.")
    lead = _lead(worst, checks)
    if worst != "fail" and more:
        lead += f" Add {_keys(more)} to check more."
    caveat = " ".join(follows) if worst == "fail" else ""
    terms = {term: size for each in missed for term, size in each.terms.items()}
    return FitMark(
        *_BADGES[worst],
        lead,
        [each.text for each in missed if each.text],
        follows,
        _advise(ordered, refuted, terms, description.remedies),
        caveat,
        spread,
    )


def _advise(
    ordered: Sequence[Aspect], sizes: Mapping[Aspect, float], terms: Mapping[str, float], own: Mapping[str, str]
) -> list[str]:
    """Return what to try, the best first, and nothing twice.

    A missing term or a skewed outcome explains tails, zeros and scatter, so these follow, by size.
    """
    by_term = sorted(terms.items(), key=lambda pair: -pair[1])
    known: set[str] = set()
    found: list[tuple[float, str]] = []
    for term, size in by_term:
        columns = set(re.findall(r"`[^`]+`|[^\W\d]\w*", term)) - {"I"}
        if not columns & known:
            # Of a column, only the plainest term: the others may vanish with it.
            written = term if "`" in term else f"`{term}`"
            found.append((size, f"Add {written} to the formula: residuals follow it."))
        known |= columns
    texts = {each: own.get(each, _REMEDIES[each]) for each in ordered if each != "bias" or not terms}
    found += [(sizes[each], text) for each, text in texts.items() if each in _CAUSES]
    first = [text for _, text in sorted(found, key=lambda pair: -pair[0])]
    every = [*first, *(text for each, text in texts.items() if each not in _CAUSES)]
    named: dict[str, str] = {}
    for text in every:
        code = re.search("`([^`]*)`", text)
        named.setdefault(code[1] if code else text, text)
    return [*named.values()]


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


def _lead(worst: str, checks: Sequence[FitCheck]) -> str:
    names = {
        state: formats.listed([*dict.fromkeys(each.name for each in checks if each.state == state)])
        for state in ("fail", "warn", "pass")
    }
    if worst == "fail":
        return f"The data refute the model ({names['fail']})."
    if worst == "warn":
        return f"No check refutes the model, but there are doubts ({names['warn']})."
    return f"No check refutes the model ({names['pass']})."


def _keys(names: Sequence[str]) -> str:
    return formats.listed([f"`{name}: {{}}`" for name in dict.fromkeys(names)])


def _not_checked(asked: Collection[AnalysisDeclaration], possible: Collection[str] | None, more: Sequence[str]) -> str:
    if any(each.checks_model for each in asked):
        return "The requested checks have no results."
    if possible is None:
        return "No check of the model's fit was requested."
    if not more:
        return "No check of the model's fit was requested, and none is possible: they need rows with outcomes that the model predicts one by one."
    return (
        f"No check of the model's fit was requested. Add {_keys(more)} to the experiment: {'these checks use' if len(more) > 1 else 'this check uses'} "
        "the same draws, without sampling again."
    )
