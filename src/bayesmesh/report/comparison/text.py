"""Summarise a comparison of models in sentences that its intervals support."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.formats import Comparison
from bayesmesh.report.comparison.models import NO_DIFFERENCE, ModelComparison, say_probabilities
from bayesmesh.store.scores import SINGLE_ROWS

FEW_ROWS = 100
SMALL_DIFFERENCE = 4.0
"""Number of rows, and difference in nats, below which the standard error of a difference is itself unreliable (Sivula
et al. 2020, arXiv:2008.10296)."""

MANY_MODELS = 5
"""Smallest number of models for which the bias from selecting the best is stated."""


def sentences(found: ModelComparison) -> list[str]:
    """Return sentences about a comparison: the best model, doubts, averages, weights by cell, probabilities."""
    best, *others = found.members
    alike = [each.name for each in others if found.words(each.difference) == NO_DIFFERENCE]
    errors = formats.fixed(found.num_errors, 1)
    of_rows = f"on {formats.count(found.num_rows)} rows"
    of_rows += f" ({found.scheme})" if found.scheme != SINGLE_ROWS else ""
    if not alike:
        said = [
            f"{best.name} predicts best {of_rows}: every other model is worse by more than {errors} standard errors."
        ]
    else:
        named = formats.listed(alike) if len(alike) <= 5 else f"{len(alike)} other models"
        plural = "does" if len(alike) == 1 else "do"
        said = [
            f"{best.name} has the highest sum of log scores {of_rows}, but {named} {plural} not differ from it by more "
            f"than {errors} standard errors of the paired difference."
        ]
        if len(alike) < len(others):
            worse = [each.name for each in others if each.name not in alike]
            named = formats.listed(worse) if len(worse) <= 5 else f"{len(worse)} other models"
            said.append(f"Worse by more than that: {named}.")
    said += _doubtful(found)
    said += _averaged(found)
    said += _by_cell(found)
    said += say_probabilities(found.probabilities)
    return said


def _doubtful(found: ModelComparison) -> list[str]:
    """Return reasons not to trust the scores or their standard errors."""
    said = []
    if found.failed:
        said.append(f"The chains of {formats.listed(found.failed)} have failed their gates: these scores may be wrong.")
    if found.failed_refits:
        some = formats.listed(found.failed_refits)
        said.append(
            f"The chains of {some} have failed their gates: scores of the rows that they leave out may be wrong."
        )
    if found.outdated:
        about = "The results of {} are older than their configuration, code or data, or are damaged: `bayesmesh status` says which."
        said.append(about.format(formats.listed(found.outdated)))
    if found.without_held_out:
        some, has = formats.listed(found.without_held_out), "has" if len(found.without_held_out) == 1 else "have"
        said.append(f"Held-out rows are not compared: {some} {has} no scores for them.")
    if high := [each.name for each in found.members if each.num_high_k]:
        said.append(f"Pareto k is too high for some rows of {formats.listed(high)}: their sums are probably too high.")
    others = found.members[1:]
    if (found.num_groups or found.num_rows) < FEW_ROWS or any(
        abs(each.difference.difference) < SMALL_DIFFERENCE for each in others
    ):
        said.append(
            f"Errors of differences are often too small with fewer than {FEW_ROWS} {'groups' if found.num_groups else 'rows'}, and for differences below "
            f"{SMALL_DIFFERENCE:g} nats, which hardly matter for prediction."
        )
    if len(found.members) >= MANY_MODELS:
        said.append(_selection(found))
    return said


def _selection(found: ModelComparison) -> str:
    """Return sentences that compare the lead of the best model with the lead expected among equally good models.

    Reference:
        McLatchie and Vehtari 2024, doi:10.1007/s11222-024-10442-4, section 4.
    """
    best, *others = found.members
    middle = found.members[len(found.members) // 2]
    spread = math.sqrt(float(np.mean([each.difference.error**2 for each in others])))
    number = len(found.members)
    chance = spread / math.sqrt(2) * float(ndtri(1 - 0.375 / (number + 0.25)))
    lead = -middle.difference.difference
    verdict = "so its lead may be due to chance" if lead < 2 * chance else "so its lead is more than chance"
    return (
        f"The best of {number} models was chosen by the same scores that it is judged by. By chance, the best of {number} equal models "
        f"would lead the middle one by about {formats.real(chance, 2)} nats; {best.name} leads it by {formats.real(lead, 3)}, {verdict}. "
        f"Being chosen makes its sum too high, by at most about {formats.real(chance, 2)} nats."
    )


def _averaged(found: ModelComparison) -> list[str]:
    """Return sentences that compare the stacked average with the best model, also on held-out rows if there are any."""
    stacked, best = found.averages[0], found.members[0]
    if best.stacking == 1:
        return [f"Stacking gives all weight to {best.name}: no average of these models predicts better."]
    on_own = _beside(stacked.difference, best.name, "on the rows that determined its weights, which favours it")
    if stacked.held_out_difference is None:
        return [f"The average with stacking weights is {on_own}."]
    held = f"on the {formats.count(found.num_held_out)} held-out rows"
    said = (
        f"The average with stacking weights is {_beside(stacked.held_out_difference, best.name, held)}; it is {on_own}."
    )
    if found.held_out_best is None:
        return [said]
    name, gap = found.held_out_best
    words = gap.words("better than", "worse than", "not clearly different from")
    return [f"{said} The model with the highest sum {held} is {name}: the average is {words} it ({gap.text(1)} nats)."]


def _beside(gap: Comparison, best: str, where: str) -> str:
    words = gap.words("better than", "worse than", "not clearly different from")
    return f"{words} {best} {where} ({gap.text(1)} nats)"


def _by_cell(found: ModelComparison) -> list[str]:
    """Return a sentence on whether weights that vary predict better in cross-validation; none without such weights."""
    if found.by_cell is None:
        return []
    feature, gain = found.by_cell.feature, found.by_cell.gain
    words = gain.words("better than", "worse than", "not clearly different from")
    return [
        f"In cross-validation, an average whose weights vary with {feature} is {words} one with the same weights everywhere "
        f"({gain.text(1)} nats)."
    ]
