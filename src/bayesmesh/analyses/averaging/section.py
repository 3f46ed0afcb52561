"""Show averages: a section of the page and a cell of the index."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from bayesmesh.analyses.averaging.panels import MEASURES, draw_reliability, draw_score
from bayesmesh.analyses.averaging.tables import read_predictions, read_scores
from bayesmesh.figures import formats
from bayesmesh.figures.sections import KeyNumber, Section, render

__all__ = ["build_section", "describe"]


def build_section(files: Mapping[str, Path]) -> Section | None:
    """Build the section; None if nothing was averaged.

    Raises:
        StoreError: a file is damaged.
    """
    scores = read_scores(files["scores.csv"])
    if scores.empty:
        return None
    last = scores.iloc[-1]
    predictions = read_predictions(files["predictions.zarr"])
    rows = [
        (heading, *_at_the_end(last, name))
        for name, (heading, _) in MEASURES.items()
        if math.isfinite(last[f"average_{name}"])
    ]
    others = (draw_score(scores, name) for name in MEASURES if name != "accuracy")
    body = render(
        Path(__file__).with_name("section.html"),
        main=draw_score(scores, "accuracy", is_main=True),
        calibration=draw_reliability(*predictions) if predictions else None,
        others=[panel for panel in others if panel],
        sentence=_gain_sentence(last),
        rows=rows,
        num_draws=last["num_draws"],
        scores=scores.to_dict("records"),
    )
    accuracy = float(last["average_accuracy"])
    known = math.isfinite(accuracy)
    return Section(body, [KeyNumber("Accuracy of the average", formats.fixed(accuracy, 4))] if known else [])


def describe(files: Mapping[str, Path]) -> str:
    """Return the accuracy of the average of all draws; empty if nothing was averaged."""
    scores = read_scores(files["scores.csv"])
    return "" if scores.empty else f"accuracy {formats.fixed(float(scores['average_accuracy'].iloc[-1]), 4)}"


def _at_the_end(last: pd.Series, name: str) -> tuple[str, str, str]:
    """Return a score of single draws, of their average, and the change."""
    single, average = float(last[f"single_{name}"]), float(last[f"average_{name}"])
    gain = average - single
    return formats.fixed(single, 5), formats.fixed(average, 5), ("+" if gain > 0 else "") + formats.fixed(gain, 5)


def _gain_sentence(last: pd.Series) -> str:
    single, average = last["single_accuracy"], last["average_accuracy"]
    if not (math.isfinite(single) and math.isfinite(average)):
        return ""
    gain = (average - single) * 100
    many = formats.count(float(last["num_draws"]))
    comparison = f"{formats.fixed(abs(gain), 2)} percentage points {'above' if gain >= 0 else 'below'}"
    return (
        f"The average of {many} draws is correct for {average * 100:.2f}% of the test rows, {comparison} "
        f"the mean of its single draws ({single * 100:.2f}%)."
    )
