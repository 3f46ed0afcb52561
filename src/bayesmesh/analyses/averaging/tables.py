"""Write and read the tables of averaging; files and stores are written atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import zarr

from bayesmesh.analyses.averaging.scores import Scores
from bayesmesh.errors import StoreError
from bayesmesh.figures.documents import read_table
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ROW

__all__ = ["COLUMNS", "read_predictions", "read_scores", "write_predictions", "write_scores"]

COLUMNS = [
    "num_draws",
    *(f"{kind}_{name}" for name in Scores._fields for kind in ("single", "average")),
    "single_accuracy_sd",
]
"""Columns of the scores: per draw count, mean scores of single draws and scores of their average.

``single_accuracy_sd`` is the standard deviation over draws, empty for one draw.
"""

MAX_PREDICTIONS = 20_000_000
"""Most probabilities to read for the calibration figure, to limit memory."""


def write_scores(path: Path, table: Sequence[Mapping[str, float]]) -> None:
    """Write the scores as CSV with `COLUMNS`, replacing an earlier file atomically."""
    write_text(path, pd.DataFrame(list(table), columns=COLUMNS).to_csv(index=False))


def read_scores(path: Path) -> pd.DataFrame:
    """Return the scores by number of draws; empty if the file does not exist.

    Raises:
        StoreError: the file is damaged.
    """
    if not path.exists():
        return pd.DataFrame(columns=COLUMNS, dtype=float)
    return read_table(path, numbers=COLUMNS).sort_values("num_draws", ignore_index=True)


def write_predictions(path: Path, probabilities: np.ndarray, labels: np.ndarray, num_draws: int) -> None:
    """Write averaged probabilities, (row, class) float32, and labels, (row,), as a Zarr group.

    An earlier group is replaced when the new one is complete.
    """
    with atomic_folder(path) as partial:
        group = open_group(partial, "w")
        group.attrs["num_draws"] = num_draws
        write_array(group, "probabilities", probabilities, (ROW, "class"))
        write_array(group, "label", labels, (ROW,))


def read_predictions(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return averaged probabilities (row, class), float64, and labels (row,); None if missing or too large.

    Raises:
        StoreError: the store is damaged.
    """
    if not path.exists():
        return None
    root = open_group(path)
    probabilities, label = root.get("probabilities"), root.get("label")
    if not isinstance(probabilities, zarr.Array) or not isinstance(label, zarr.Array) or probabilities.ndim != 2:
        return None
    if probabilities.size > MAX_PREDICTIONS:
        return None
    try:
        return np.asarray(probabilities[...], dtype=np.float64), np.asarray(label[...], dtype=np.int64)
    except (OSError, ValueError, RuntimeError) as error:
        raise StoreError(f"{path}: {error}", "run the average stage again") from error
