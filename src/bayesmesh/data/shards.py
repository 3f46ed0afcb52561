"""Read ranges of rows from row shards, opening only the files that contain them, and hash all that a model can see."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import zarr

from bayesmesh.data.base import Column, DataSpec, FieldSpec
from bayesmesh.data.split import Interactions
from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import open_group

REMEDY = "run the shard stage again"

# Zarr and its codecs raise these for a wrong checksum and for a missing or shortened file.
DAMAGE = (RuntimeError, ValueError, KeyError, OSError)


class Shards:
    """The shards of one dataset and split; the constructor reads only attributes.

    Attributes:
        path: folder of the Zarr group.
        kind: ``rows`` or ``interactions``.
        num_rows: training rows, in ``rows``.
        constants: scalars that models need.
        columns: name -> one value per column of a row.
        fields: name -> shape and dtype of one row.
        fingerprint: sha256 over all decoded values, including the held-out part.

    Raises:
        StoreError: the shards are missing, or their description is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._group: zarr.Group = open_group(path)
            attributes: dict[str, Any] = dict(self._group.attrs)
            self.kind: Literal["rows", "interactions"] = attributes["kind"]
            self.num_rows = int(attributes["num_rows"])
            self.constants: Mapping[str, float | int] = attributes["constants"]
            self.columns: Mapping[str, Column] = attributes["columns"]
            self.fingerprint: str = attributes["fingerprint"]
            self.fields = {n: FieldSpec(tuple(f["shape"]), f["dtype"]) for n, f in attributes["fields"].items()}
        except DAMAGE as error:
            raise StoreError(f"{path / 'zarr.json'}: not a whole group of shards: {error}", REMEDY) from error

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the data for a model; `dtype` is that of latents and arithmetic."""
        return DataSpec(num_rows=self.num_rows, fields=self.fields, constants=self.constants, dtype=dtype)

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return training rows ``start`` to ``stop - 1``: name -> (stop - start, ...), dtypes as on disk.

        Raises:
            IndexError: the range is not within ``num_rows``.
            StoreError: a chunk of the range is damaged or missing.
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of {self.num_rows}")
        return {name: self._read(f"rows/{name}", slice(start, stop)) for name in self.fields}

    def test_rows(self) -> dict[str, np.ndarray]:
        """Return the published test set, empty without one."""
        return self._read_part("test_rows")

    def held_out(self) -> Interactions | dict[str, np.ndarray] | None:
        """Return the held-out part: films per user, or rows; None if nothing was held out."""
        if self.kind == "rows":
            return self._read_part("held_out_rows") or None
        found = self._read_part("held_out")
        return Interactions(**found) if found else None

    def truth(self) -> dict[str, np.ndarray]:
        """Return the latents that generated simulated data; empty for real data."""
        return self._read_part("truth")

    def verify(self) -> None:
        """Read everything and compare with the fingerprint.

        Raises:
            StoreError: a part is damaged or has changed.
        """
        parts = ("rows", "test_rows", "held_out_rows", "held_out", "truth")
        arrays = {f"{part}/{name}": values for part in parts for name, values in self._read_part(part).items()}
        described = {"kind": self.kind, "constants": self.constants, "columns": self.columns}
        found = fingerprint_data(arrays, described)
        if found != self.fingerprint:
            raise StoreError(f"{self.path}: fingerprint {self.fingerprint} expected, {found} found", REMEDY)

    def _read_part(self, part: str) -> dict[str, np.ndarray]:
        try:
            group = self._group.get(part)
            names = sorted(group.array_keys()) if isinstance(group, zarr.Group) else []
        except DAMAGE as error:
            raise StoreError(f"{self.path / part}: damaged: {error}", REMEDY) from error
        return {name: self._read(f"{part}/{name}", ...) for name in names}

    def _read(self, name: str, rows: slice | EllipsisType) -> np.ndarray:
        try:
            array = self._group[name]
            if not isinstance(array, zarr.Array):
                raise ValueError("a group instead of an array")
            return np.asarray(array[rows])
        except DAMAGE as error:
            raise StoreError(f"{self.path / name}: damaged or missing: {error}", REMEDY) from error


def fingerprint_data(arrays: Mapping[str, np.ndarray], described: Mapping[str, object]) -> str:
    """Return a sha256, in hexadecimal, over decoded values, independent of chunks, compression and storage.

    Args:
        arrays: name -> array; names, dtypes, shapes and values count, the order of the mapping does not.
        described: everything except arrays (kind, constants, columns), as plain values; the order within lists counts.

    >>> one = fingerprint_data({"a": np.zeros(2), "b": np.ones(1)}, {})
    >>> one == fingerprint_data({"b": np.ones(1), "a": np.zeros(2)}, {})
    True
    >>> one == fingerprint_data({"a": np.zeros((2, 1)), "b": np.ones(1)}, {})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        # Little-endian everywhere, so that the same data has the same fingerprint on every machine.
        values = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).reshape(values.shape)
        header = json.dumps([name, values.dtype.str, list(values.shape)])
        digest.update(len(header).to_bytes(8, "little") + header.encode())
        digest.update(values.data if values.size else b"")
    digest.update(json.dumps(described, sort_keys=True, ensure_ascii=False, allow_nan=False).encode())
    return digest.hexdigest()
