"""Show averages: a section of the page and a cell of the index."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import zarr
from matplotlib.axes import Axes

from bayesmesh.analyses.averaging.scores import CLASSES, COLUMNS, IMAGE_SHAPE
from bayesmesh.analyses.figures import formats
from bayesmesh.analyses.figures.canvas import INK, MUTED, Panel, draw, log_axis, series
from bayesmesh.analyses.figures.documents import read_table
from bayesmesh.analyses.figures.formats import Comparison, error_text
from bayesmesh.analyses.figures.sections import KeyNumber, Section, png_address, render
from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group, read_part

MEASURES = {
    "accuracy": ("Accuracy", "higher is better"),
    "log_score": ("Log score", "mean log probability of the outcome in nats, higher is better"),
    "brier": ("Brier score", "lower is better"),
    "ece": ("Calibration error", "expected calibration error, lower is better"),
}
"""Score -> heading and explanation."""

LOWER_IS_BETTER = ("brier", "ece")

MAX_PREDICTIONS = 20_000_000
"""Most probabilities to read for the calibration figure, to limit memory."""


def build_section(files: Mapping[str, Path]) -> Section:
    """Build the section.

    Raises:
        StoreError: a file is damaged.
    """
    scores = read_scores(files["scores.csv"])
    last = scores.iloc[-1]
    predictions = read_predictions(files["predictions.zarr"])
    others = (draw_score(scores, name) for name in MEASURES if name != "accuracy")
    body = render(
        Path(__file__).with_name("section.html"),
        main=draw_score(scores, "accuracy", is_main=True),
        calibration=draw_reliability(*predictions) if predictions else None,
        others=[panel for panel in others if panel],
        mistakes=read_mistakes(files["predictions.zarr"], *predictions) if predictions else None,
        sentence=_gain_sentence(last),
        rows=[_score_row(last, name) for name in MEASURES],
        num_draws=last["num_draws"],
        scores=scores.to_dict("records"),
    )
    accuracy = float(last["average_accuracy"])
    value = formats.fixed(accuracy, 4) + error_text(float(last["average_accuracy_se"]), 4)
    number = KeyNumber("Accuracy of the average", value, "± one standard error over test rows")
    return Section(body, [number] if math.isfinite(accuracy) else [])


def describe(files: Mapping[str, Path]) -> str:
    """Return the accuracy of the average of all draws."""
    scores = read_scores(files["scores.csv"])
    return f"accuracy {formats.fixed(float(scores['average_accuracy'].iloc[-1]), 4)}"


class ScoreRow(NamedTuple):
    """A score of single draws and of their average; `outcome` says whether the average is better or worse."""

    heading: str
    single: str
    average: str
    average_error: str
    change: str
    error: str
    outcome: str
    is_worse: bool


def _gain(last: pd.Series, name: str, unit: float = 1.0) -> Comparison:
    """Return the average's score minus that of its single draws, with the error of the difference."""
    gain = float(last[f"average_{name}"]) - float(last[f"single_{name}"])
    return Comparison(unit * gain, unit * float(last[f"gain_{name}_se"]))


def _score_row(last: pd.Series, name: str) -> ScoreRow:
    single, average = (formats.fixed(float(last[f"{kind}_{name}"]), 5) for kind in ("single", "average"))
    gain = _gain(last, name)
    words = ("worse", "better") if name in LOWER_IS_BETTER else ("better", "worse")
    outcome = gain.words(*words)
    change, error = gain.signed(5), error_text(gain.error, 5, "error not known").strip()
    own = error_text(float(last[f"average_{name}_se"]), 5, "error not known").strip()
    return ScoreRow(MEASURES[name][0], single, average, own, change, error, outcome, outcome == "worse")


def _gain_sentence(last: pd.Series) -> str:
    """Compare the average with single draws; empty unless both accuracies are finite."""
    single, average = (float(last[f"{kind}_accuracy"]) for kind in ("single", "average"))
    if not (math.isfinite(single) and math.isfinite(average)):
        return ""
    gain = _gain(last, "accuracy", 100)
    change = f"{formats.fixed(abs(gain.difference), 2)}{error_text(gain.error, 2)} percentage points"
    relation = gain.words(
        f"{change} above the mean of single draws",
        f"{change} below the mean of single draws",
        f"not clearly different (in percentage points: {gain.text(2)}) from the mean of single draws",
    )
    return (
        f"The average of {formats.count(float(last['num_draws']))} draws predicts {100 * average:.2f}% of the test rows correctly, "
        f"{relation} ({100 * single:.2f}%)."
    )


def read_scores(path: Path) -> pd.DataFrame:
    """Return the scores by number of draws.

    Raises:
        StoreError: the file is damaged.
    """
    return read_table(path, numbers=COLUMNS).sort_values("num_draws", ignore_index=True)


def read_predictions(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return averaged probabilities (row, class), float64, and labels (row,); None if too large.

    Raises:
        StoreError: the store is damaged.
    """
    root = open_group(path)
    probabilities, label = root.get("probabilities"), root.get("label")
    if not isinstance(probabilities, zarr.Array) or not isinstance(label, zarr.Array):
        raise StoreError(f"{path}: no array 'probabilities' or 'label'", "run the average stage again")
    if probabilities.size > MAX_PREDICTIONS:
        return None
    return read_part(probabilities).astype(np.float64), read_part(label)


def draw_score(scores: pd.DataFrame, measure: str, *, is_main: bool = False) -> Panel | None:
    """Draw a score of single draws and of their average against the number of draws, on a logarithmic axis.

    Args:
        scores: table from `read_scores`.
        measure: one of `MEASURES`.
        is_main: draw a large panel with both final values beside the lines.

    Returns:
        None if the measure was recorded at fewer than two draw counts.
    """
    kept = scores[(scores["num_draws"] > 0) & np.isfinite(scores[f"average_{measure}"])]
    if len(kept) < 2:
        return None
    columns = ("num_draws", f"single_{measure}", f"average_{measure}", "single_accuracy_sd")
    num_draws, single, average, spread = (kept[column].to_numpy() for column in columns)
    heading, reading = MEASURES[measure]

    def plot(axes: Axes) -> None:
        if measure == "accuracy" and np.isfinite(spread).any():
            axes.fill_between(num_draws, single - spread, single + spread, color=series(3), alpha=0.15, linewidth=0)
        for values, colour, dashes in ((single, series(3), (0, (4, 2))), (average, series(0), "solid")):
            (line,) = axes.plot(num_draws, values, color=colour, linestyle=dashes, marker="o", linewidth=1.7)
            line.set_markersize(3.5 if is_main else 2.5)
            if is_main:
                text, end = f"{values[-1]:.4f}", (num_draws[-1], values[-1])
                axes.annotate(text, end, (7, 0), textcoords="offset points", color=INK, va="center", fontsize=10)
        axes.set_xscale("log")
        log_axis(axes.xaxis)
        axes.set_xlabel("draws in the average")
        if is_main:
            axes.set_ylabel(heading.lower())

    size = (420, 260) if is_main else (340, 190)
    label = f"{heading} against number of draws: single draws {single[-1]:.4g}, their average {average[-1]:.4g}"
    return draw(
        f"score-{measure}", plot, size=size, label=label, title=heading, note=f"{reading[0].upper()}{reading[1:]}."
    )


def draw_reliability(probabilities: np.ndarray, labels: np.ndarray, num_bins: int = 12) -> Panel:
    """Draw the accuracy of the averaged prediction against its confidence.

    Args:
        probabilities: averaged probabilities, shape (row, class).
        labels: class labels, shape (row,).
        num_bins: number of equal-width confidence bins.

    Reference:
        Guo et al. 2017, "On calibration of modern neural networks", arXiv:1706.04599, section 2.
    """
    confidence = probabilities.max(axis=1)
    is_right = probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    rows = np.bincount(bins, minlength=num_bins)
    kept = rows > 0
    mean = np.bincount(bins, confidence, num_bins)[kept] / rows[kept]
    right = np.bincount(bins, is_right, num_bins)[kept] / rows[kept]
    low, high = wilson(right, rows[kept])

    def plot(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=1, linestyle=(0, (4, 2)))
        axes.vlines(mean, low, high, color=series(0), linewidth=1.2)
        axes.plot(mean, right, color=series(0), marker="o", markersize=4, linewidth=0)
        axes.set(xlim=(0, 1.02), ylim=(0, 1.02), aspect="equal")
        axes.yaxis.set_major_locator(axes.xaxis.get_major_locator())
        axes.set(xlabel="probability of the predicted class", ylabel="share of correct predictions")

    note = f"The average's predictions on {len(labels):,} rows, in bins of equal width, with 95% intervals."
    return draw(
        "reliability", plot, size=(320, 240), label="Reliability diagram of the average", title="Calibration", note=note
    )


MOST_CLASSES = 30

Z = 1.96
"""Normal quantile of a 95% interval."""


class ClassRow(NamedTuple):
    """A row of the confusion matrix: a class, its predictions, and the share of correct ones, with a 95% interval."""

    name: str
    counts: tuple[int, ...]
    right: float
    low: float
    high: float


class Case(NamedTuple):
    """A test row: its class, the two most probable ones, and its uncertainty in nats.

    Attributes:
        row: position among the test rows.
        image: its address, or empty.
        label, first, second: names of classes.
        p_first, p_second: their averaged probabilities.
        entropy: of the averaged probabilities.
        share: part of the entropy due to disagreement between draws.
    """

    row: int
    image: str
    label: str
    first: str
    second: str
    p_first: float
    p_second: float
    entropy: float
    share: float


@dataclasses.dataclass(frozen=True)
class Mistakes:
    """The confusion matrix and the least certain cases; `largest` is the largest off-diagonal count."""

    names: Sequence[str]
    rows: Sequence[ClassRow]
    largest: int
    cases: Sequence[Case]


def wilson(right: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of Wilson's 95% interval for shares: within [0, 1], of positive width even for shares of 1.

    Args:
        right: shares, any shape.
        count: rows of each, at least 1.

    >>> [round(float(end), 3) for end in wilson(np.array(1.0), np.array(20))]
    [0.839, 1.0]
    """
    centre = (right + Z**2 / (2 * count)) / (1 + Z**2 / count)
    half = Z * np.sqrt(right * (1 - right) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    return centre - half, np.minimum(centre + half, 1.0)


def read_mistakes(path: Path, probabilities: np.ndarray, labels: np.ndarray) -> Mistakes | None:
    """Return the confusion matrix and the least certain cases; None with too many classes.

    Args:
        path: group of the predictions.
        probabilities: (row, class).
        labels: (row,).

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    num_classes = probabilities.shape[1]
    if num_classes > MOST_CLASSES:
        return None
    group = open_group(path)
    given = group.attrs.get(CLASSES)
    is_named = isinstance(given, list) and len(given) == num_classes
    names = [str(each) for each in given] if is_named else list(map(str, range(num_classes)))  # type: ignore[union-attr]
    counts = np.zeros((num_classes, num_classes), np.int64)
    np.add.at(counts, (labels, probabilities.argmax(axis=1)), 1)
    beside = counts - np.diag(np.diag(counts))
    total = counts.sum(axis=1)
    right = np.divide(np.diag(counts), total, out=np.full(num_classes, np.nan), where=total > 0)
    ends = np.stack([right, *wilson(right, np.maximum(total, 1))], axis=1).tolist()
    rows = [ClassRow(name, tuple(row), *each) for name, row, each in zip(names, counts.tolist(), ends, strict=True)]
    return Mistakes(names, rows, int(beside.max(initial=0)), _cases(group, probabilities, labels, names))


def _cases(group: zarr.Group, probabilities: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> list[Case]:
    arrays = [group.get(name) for name in ("case", "entropy", "entropy_of_draws")]
    if not all(isinstance(array, zarr.Array) for array in arrays):
        return []
    chosen, total, of_draws = (read_part(array) for array in arrays)  # type: ignore[arg-type]
    images, shape = group.get("image"), group.attrs.get(IMAGE_SHAPE)
    pixels = read_part(images) if isinstance(images, zarr.Array) and isinstance(shape, list) else None
    cases = []
    for place, row in enumerate(map(int, chosen)):
        order = np.argsort(-probabilities[row], kind="stable")
        first, second = int(order[0]), int(order[min(1, len(order) - 1)])
        image = "" if pixels is None else _image(pixels[place], tuple(map(int, shape)), pixels)  # type: ignore[arg-type]
        between = max(0.0, 1 - float(of_draws[row]) / float(total[row])) if total[row] > 0 else 0.0
        cases.append(
            Case(
                row, image, names[int(labels[row])], names[first], names[second],
                float(probabilities[row, first]), float(probabilities[row, second]), float(total[row]), between,
            )
        )  # fmt: skip
    return cases


def _image(pixels: np.ndarray, shape: tuple[int, ...], of_all: np.ndarray) -> str:
    """Return an image, dark where values are large, on the same scale for all images."""
    low, high = float(of_all.min()), float(of_all.max())
    return png_address((255 * (1 - (pixels.reshape(shape) - low) / ((high - low) or 1.0))).astype(np.uint8))
