"""Tabulate which classes are mistaken for which, and the cases that the average is least certain about."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zarr

from bayesmesh.analyses.averaging.uncertainty import CLASSES, IMAGE_SHAPE
from bayesmesh.analyses.figures.images import png_address
from bayesmesh.store.arrays import open_group, read_part

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
    rows = [
        _class_row(name, of_class, number) for number, (name, of_class) in enumerate(zip(names, counts, strict=True))
    ]
    return Mistakes(names, rows, int(beside.max(initial=0)), _cases(group, probabilities, labels, names))


def _class_row(name: str, counts: np.ndarray, number: int) -> ClassRow:
    total = int(counts.sum())
    if not total:
        return ClassRow(name, tuple(map(int, counts)), math.nan, math.nan, math.nan)
    right = counts[number] / total
    low, high = wilson(np.asarray(right), np.asarray(total))
    return ClassRow(name, tuple(map(int, counts)), float(right), float(low), float(high))


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
