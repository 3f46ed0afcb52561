"""Find the test rows of which the average is least certain, and whether single draws are uncertain or disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import zarr

from bayesmesh.store.arrays import write_array

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
    logs = np.log(np.where(probabilities > 0, probabilities, 1.0))
    # Subtracted from 0, because a negated 0 would be shown as -0.
    return np.asarray(0.0 - (probabilities * logs).sum(axis=-1))


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
