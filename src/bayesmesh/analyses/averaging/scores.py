"""Proper scores of categorical predictive probabilities, and their calibration.

Everything here is NumPy in float64: `bayesmesh.analyses.averaging.average` computes the same scores on a device for single
draws, and a test compares the two.

References:
    Gneiting and Raftery 2007, "Strictly proper scoring rules, prediction, and estimation",
    doi:10.1198/016214506000001437 (log score, Brier score).
    Guo et al. 2017, "On calibration of modern neural networks", arXiv:1706.04599, equation 3 (calibration error).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import zarr
from scipy.special import entr

from bayesmesh.store.arrays import write_array

LOG_FLOOR = float(np.finfo(np.float32).tiny)
"""Smallest probability that the log score distinguishes: 1.18e-38, or -87.3 nats; smaller ones count as this."""


class Scores(NamedTuple):
    """Scores of one set of predictions; only `brier` and `ece` are better when lower."""

    accuracy: float
    log_score: float
    brier: float
    ece: float


COLUMNS = [
    "num_draws",
    *(f"{kind}_{name}" for name in Scores._fields for kind in ("single", "average")),
    "single_accuracy_sd",
    *(f"gain_{name}_se" for name in Scores._fields),
    *(f"average_{name}_se" for name in Scores._fields),
]
"""Columns of the scores: per draw count, mean scores of single draws and scores of their average.

``average_accuracy_se`` and the like are standard errors over test rows. ``single_accuracy_sd`` is the standard deviation over draws, empty for one draw. ``gain_accuracy_se`` and the like are the
standard errors over test rows of the average's score minus that of single draws on the same rows, empty for one row.
"""

NUM_GROUPS = 20
"""Groups of test rows that the jackknife leaves out in turn; fewer if there are fewer rows."""


def accuracy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose most probable class is the label; ties go to the lower class.

    Args:
        probabilities: (rows, classes), non-negative, each row summing to 1.
        labels: (rows,), integers in [0, classes).

    >>> accuracy(np.array([[0.8, 0.2], [0.5, 0.5], [0.1, 0.9]]), np.array([0, 1, 1])).__round__(3)
    0.667
    """
    return float(np.mean(probabilities.argmax(axis=1) == labels))


def log_score(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean log probability of the labels, in nats per row; higher is better, 0 is perfect.

    A probability below `LOG_FLOOR` counts as `LOG_FLOOR`, so that a label whose float32 softmax rounds to zero
    costs 87.3 nats instead of an infinite score.

    Args:
        probabilities: (rows, classes).
        labels: (rows,), integers in [0, classes).

    >>> round(log_score(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 0])), 4)
    -1.0397
    >>> round(log_score(np.array([[0.0, 1.0]]), np.array([0])), 1)
    -87.3
    """
    chosen = _of_label(probabilities, labels)
    return float(np.mean(np.log(np.maximum(chosen, LOG_FLOOR))))


def brier_score(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean over rows of the squared distance to the label's indicator, summed over classes: 0 to 2.

    Args:
        probabilities: (rows, classes).
        labels: (rows,), integers in [0, classes).

    >>> brier_score(np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]), np.array([0, 0]))
    1.1875
    """
    probabilities = np.asarray(probabilities, np.float64)
    squares = np.einsum("rc,rc->r", probabilities, probabilities)
    return float(np.mean(squares - 2.0 * _of_label(probabilities, labels) + 1.0))


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray, num_bins: int) -> float:
    """Return the calibration error of the most probable class over equal-width confidence bins.

    Bin m holds the rows whose largest probability lies in ((m - 1) / num_bins, m / num_bins]; the error is the mean
    over bins, weighted by their rows, of |share of correct rows - mean confidence|.

    Args:
        probabilities: (rows, classes).
        labels: (rows,), integers in [0, classes).
        num_bins: number of bins, at least 1.

    Reference:
        Guo et al. 2017, arXiv:1706.04599, equation 3.

    >>> round(expected_calibration_error(np.array([[0.9, 0.1], [0.7, 0.3], [0.6, 0.4]]), np.array([0, 0, 1]), 2), 4)
    0.0667
    """
    confidence = np.max(probabilities, axis=1).astype(np.float64)
    gap = (probabilities.argmax(axis=1) == labels) - confidence
    bins = np.clip(np.ceil(confidence * num_bins).astype(np.int64) - 1, 0, num_bins - 1)
    return float(np.abs(np.bincount(bins, weights=gap, minlength=num_bins)).sum() / len(labels))


def score_probabilities(probabilities: np.ndarray, labels: np.ndarray, num_bins: int) -> Scores:
    """Return all scores; arguments as in `expected_calibration_error`."""
    return Scores(
        accuracy(probabilities, labels),
        log_score(probabilities, labels),
        brier_score(probabilities, labels),
        expected_calibration_error(probabilities, labels, num_bins),
    )


def row_groups(num_rows: int) -> np.ndarray:
    """Return the jackknife group of each row, (rows,) int32; neighbouring rows lie in different groups.

    >>> row_groups(22)[[0, 1, 20]]
    array([0, 1, 0], dtype=int32)
    """
    return np.arange(num_rows, dtype=np.int32) % min(NUM_GROUPS, num_rows)


def _of_label(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return np.take_along_axis(probabilities, np.asarray(labels, np.int64)[:, None], axis=1)[:, 0].astype(np.float64)


NUM_CASES = 24

IMAGE_SHAPE, CLASSES = "image_shape", "classes"
"""Attributes of the group of predictions."""

PIXELS = "features"
"""Field that may hold the pixels of an image."""


class Entropies(NamedTuple):
    """Uncertainty of each prediction, in nats, shape (row,).

    Attributes:
        total: entropy of the averaged probabilities.
        of_draws: mean entropy of the probabilities of single draws: the uncertainty that would remain if the parameters
            were known. The rest, the mutual information of outcome and parameters, is disagreement between draws.

    Reference:
        Depeweg et al. 2018, "Decomposition of uncertainty in Bayesian deep learning", arXiv:1710.07283, section 3.
    """

    total: np.ndarray
    of_draws: np.ndarray


def entropy(probabilities: np.ndarray) -> np.ndarray:
    """Return the entropy along the last axis, in nats.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4)
    array([0.6931, 0.    ])
    """
    # Added to 0, because a negated 0 would be shown as -0.
    return np.asarray(0.0 + entr(probabilities).sum(axis=-1))


def write_cases(
    group: zarr.Group,
    entropies: Entropies,
    test_rows: Mapping[str, np.ndarray],
    image_shape: tuple[int, int] | None,
    classes: Sequence[str],
) -> None:
    """Add the entropies of all rows, the rows with the largest entropies, and their images to the predictions.

    Args:
        group: of the predictions.
        entropies: of all rows.
        test_rows: name -> (rows, ...).
        image_shape: of the field `PIXELS`; None if it holds no image.
        classes: names of the classes; empty if they are numbered.
    """
    write_array(group, "entropy", entropies.total.astype(np.float32), ("row",))
    write_array(group, "entropy_of_draws", entropies.of_draws.astype(np.float32), ("row",))
    cases = np.argsort(-entropies.total, kind="stable")[:NUM_CASES]
    write_array(group, "case", cases, ("case",))
    group.attrs[CLASSES] = list(classes)
    pixels = test_rows.get(PIXELS)
    if image_shape is not None and pixels is not None and pixels.shape[1:] == (image_shape[0] * image_shape[1],):
        group.attrs[IMAGE_SHAPE] = list(image_shape)
        write_array(group, "image", pixels[cases], ("case", "pixel"))
