"""Shards as seen by models that take all rows together: the whole dataset is one row."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bayesmesh.data.base import FieldSpec
from bayesmesh.data.prepared_shards import Prepare
from bayesmesh.data.shards import Shards


class WholeShards(Shards):
    """All training rows as one row, each field (num_rows, ...); test and held-out rows stay separate rows.

    Args:
        path: folder of the Zarr group.
        prepare: the model's `prepare`, of which only the constants are used.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, prepare: Prepare) -> None:
        super().__init__(path)
        self._length, self.num_rows = self.num_rows, 1
        self.fields = {
            name: FieldSpec((self._length, *field.shape), field.dtype) for name, field in self.fields.items()
        }
        preparation = prepare(self.spec(), lambda: iter([self.read_rows(0, 1)]))
        if preparation is not None:
            self.constants = {**self.constants, **preparation.constants}

    @property
    def num_observations(self) -> int:
        """Training rows as the source counts them."""
        return self._length

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return name -> (1, num_rows, ...), or (0, num_rows, ...) for an empty range.

        Raises:
            IndexError: the range is not within the one row.
            StoreError: a chunk is damaged or missing.
        """
        if not 0 <= start <= stop <= 1:
            raise IndexError(f"rows {start} to {stop} of one")
        read = slice(0, self._length)
        return {name: self._read(f"rows/{name}", read)[None][start:stop] for name in self.fields}
