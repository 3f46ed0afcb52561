"""Shards whose rows each stand for many rows, because a model's likelihood needs only sums over these."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Protocol

import numpy as np

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.shards import Shards


class CondensedLike(Protocol):
    """See `bayesmesh.models.base.Condensed`."""

    @property
    def fields(self) -> dict[str, np.ndarray]: ...
    @property
    def entry_counts(self) -> tuple[int, ...]: ...
    @property
    def are_sums(self) -> bool: ...


class CondensedShards(Shards):
    """Condensed rows in memory; test and held-out rows are those of the shards.

    Args:
        path: folder of the Zarr group.
        rows: condensed rows.
        about: description of the rows for which they stand.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, rows: CondensedLike, about: DataSpec) -> None:
        super().__init__(path)
        self._rows, self._about = rows.fields, about
        self._counts, self._are_sums = rows.entry_counts, rows.are_sums
        self.constants = about.constants
        self.num_rows = len(next(iter(self._rows.values())))
        self.fields = {name: FieldSpec(v.shape[1:], v.dtype.name) for name, v in self._rows.items()}

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the condensed rows."""
        return dataclasses.replace(
            self._about, num_rows=self.num_rows, fields=self.fields, dtype=dtype, entry_counts=self._counts, is_condensed=True,
            are_sums=self._are_sums,
        )  # fmt: skip

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return condensed rows ``start`` to ``stop - 1``.

        Raises:
            IndexError: the range is not within ``num_rows``.
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of {self.num_rows}")
        return {name: values[start:stop] for name, values in self._rows.items()}
