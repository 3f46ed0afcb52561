"""The 1,797 handwritten digits of 8 x 8 pixels that come with scikit-learn: real data that need no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.sources.options import DigitsOptions as Options


def stratified_split(labels: np.ndarray, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split row indices so that both parts have the labels in the same proportions.

    Args:
        labels: (rows,) integers.
        fraction: share of rows in the second part, in (0, 1).
        seed: seed of the choice.

    Returns:
        Indices of both parts, int64, each ascending.
    """
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        shuffled = np.random.default_rng([seed, int(label)]).permutation(members)
        chosen[shuffled[: round(fraction * len(members))]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


class Source(base.Source):
    """Fields ``features`` (rows, 64) uint8, 0 to 16, and ``label`` (rows,) uint8, 0 to 9."""

    pretty_name = "Digits (8 x 8)"
    offers = ("averaging",)
    image_shape = (8, 8)
    options: Options

    def read(self, folder: Path) -> Dataset:
        """Load the table and split it; rows keep the order of scikit-learn's file."""
        del folder
        from sklearn.datasets import load_digits

        table = load_digits()
        features, labels = table.data.astype(np.uint8), table.target.astype(np.uint8)
        train, test = stratified_split(labels, self.options.test_fraction, self.options.seed)
        return Dataset(
            rows={"features": features[train], "label": labels[train]},
            test_rows={"features": features[test], "label": labels[test]},
            constants={"num_classes": 10, "feature_scale": 16},
            declared_counts={"rows": 1797 - len(test), "test_rows": len(test)},
        )
