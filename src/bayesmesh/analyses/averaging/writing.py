"""Writes what the averaging stage found; a file or store bears its name only when it is complete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bayesmesh.analyses.averaging.scores import Scores
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import ROW

__all__ = ["COLUMNS", "write_predictions", "write_scores"]

COLUMNS = [
    "num_draws",
    *(f"{kind}_{name}" for name in Scores._fields for kind in ("single", "average")),
    "single_accuracy_sd",
]
"""Columns of the scores: at a draw count, means over the single draws so far and scores of their average.

``single_accuracy_sd`` is the standard deviation over draws, empty for one draw.
"""


def write_scores(path: Path, table: Sequence[Mapping[str, float]]) -> None:
    """Write the scores as CSV with `COLUMNS`, replacing an earlier file at once."""
    write_text(path, pd.DataFrame(list(table), columns=COLUMNS).to_csv(index=False))


def write_predictions(path: Path, probabilities: np.ndarray, labels: np.ndarray, num_draws: int) -> None:
    """Write averaged probabilities, (row, class) float32, and labels, (row,), as a Zarr group.

    What an earlier run left is replaced after the new group is complete.
    """
    with atomic_folder(path) as partial:
        group = open_group(partial, "w")
        group.attrs["num_draws"] = num_draws
        write_array(group, "probabilities", probabilities, (ROW, "class"))
        write_array(group, "label", labels, (ROW,))
