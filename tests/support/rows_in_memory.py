"""Shards whose rows are arrays in memory."""

from __future__ import annotations

import numpy as np


class Rows:
    """Row shards in memory."""

    def __init__(self, rows: dict[str, np.ndarray]) -> None:
        self.rows = rows
        self.num_rows = len(next(iter(rows.values())))

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        return {name: value[start:stop] for name, value in self.rows.items()}

    def read_chosen(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        return {name: value[rows] for name, value in self.rows.items()}
