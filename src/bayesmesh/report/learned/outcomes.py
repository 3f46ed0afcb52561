"""Choose the figures of the outcome by predictors for the section "What was learned"."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from bayesmesh.analyses.figures.canvas import Panel
from bayesmesh.analyses.figures.sections import Section

MOST_FIGURES = 6
"""Largest number of predictors with a figure, if a formula names them."""

MOST_UNASKED = 4
"""Largest number of columns with a figure, if no formula names the predictors."""


@dataclasses.dataclass(frozen=True)
class ShownOutcomes:
    """Figures of the outcome by predictors, a note on how to read them, and predictors without a figure."""

    panels: Sequence[Panel]
    note: str
    left_out: Sequence[str]


def choose_outcomes(sections: Sequence[Section], config: Mapping[str, object]) -> ShownOutcomes | None:
    """Return figures of the outcome by the predictors of the formula, in its order, or by the first columns.

    Args:
        sections: sections of all analyses.
        config: whole configuration of the experiment.

    Returns:
        The figures; None if no analysis offers any, or none of them shows a predictor of the formula.
    """
    found = next((each.by_column for each in sections if each.by_column is not None), None)
    if found is None:
        return None
    model = config.get("model")
    formula = model.get("formula") if isinstance(model, Mapping) else None
    if isinstance(formula, str) and "~" in formula:
        outcome, _, terms = formula.partition("~")
        places = {
            name: at.start() for name in found.draw if (at := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", terms))
        }
        names, most = sorted(places, key=lambda name: places[name]), MOST_FIGURES
    else:
        outcome, names, most = "outcome", [*found.draw], MOST_UNASKED
    panels = [found.draw[name](outcome.strip()) for name in names[:most]]
    return ShownOutcomes(panels, found.note, names[most:]) if panels else None
