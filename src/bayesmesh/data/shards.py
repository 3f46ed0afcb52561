"""Read ranges of rows from row shards, opening only the files that contain them, and hash everything that a model can see."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal

import numpy as np
import zarr

from bayesmesh.data.base import Column, Dataset, DataSpec, FieldSpec, RowArray, Variable
from bayesmesh.data.split import Interactions, UnseenUsers
from bayesmesh.errors import StoreError
from bayesmesh.files import JSON
from bayesmesh.store.arrays import open_group

REMEDY = "run the shard stage again"

UNSEEN = "unseen"
"""Group of the users whom the chains do not see."""

HELD_OUT_GROUPS = "held_out_groups"
"""Attribute that names the field whose values were held out as whole groups."""

LEFT_OUT = "left_out"
"""Group with the numbers of the rows that a refit leaves out."""

PARTS = ("rows", "test_rows", "held_out_rows", "held_out", UNSEEN, LEFT_OUT, "truth")
"""Groups of arrays whose values the fingerprint covers."""

READ_ROWS = 8192
"""Number of rows read at a time when only a few of them are needed."""

HASHED_BYTES = 2**24
"""Size of the block of an array that is hashed at a time."""

# Zarr and its codecs raise these for a wrong checksum and for a missing or truncated file.
DAMAGE = (RuntimeError, ValueError, KeyError, OSError)

BLOCK_ROWS = 65_536
"""Number of rows in memory at a time while a model inspects all of them."""


class Shards:
    """The shards of one dataset and split; the constructor reads only attributes.

    Attributes:
        path: folder of the Zarr group.
        kind: ``rows`` or ``interactions``.
        num_rows: training rows, in ``rows``.
        constants: scalars that models need.
        columns: name -> one value per column of a row.
        variables: column of a table -> meaning of its numbers.
        labels: field -> names along its last axis.
        roles: role -> field.
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
            self.variables = {
                name: Variable(**{**about, "levels": tuple(about["levels"])})
                for name, about in attributes.get("variables", {}).items()
            }
            self.labels = {name: tuple(labels) for name, labels in attributes.get("labels", {}).items()}
            self.roles: Mapping[str, str] = attributes.get("roles", {})
            self.fingerprint: str = attributes["fingerprint"]
            self.fields = {
                name: FieldSpec(tuple(about["shape"]), about["dtype"], about.get("num_codes", 0))
                for name, about in attributes["fields"].items()
            }
        except DAMAGE as error:
            raise StoreError(f"{path / 'zarr.json'}: not a whole group of shards: {error}", REMEDY) from error

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the data for a model; `dtype` is that of latents and arithmetic."""
        return DataSpec(self.num_rows, self.fields, self.constants, dtype, (), self.variables, self.labels, self.roles)

    def blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield all training rows in blocks of bounded memory."""
        for start in range(0, self.num_rows, BLOCK_ROWS):
            yield self.read_rows(start, min(self.num_rows, start + BLOCK_ROWS))

    def all_blocks(self) -> Iterator[dict[str, np.ndarray]]:
        """Yield training rows in blocks, then the held-out rows and the test rows, as the source has them."""
        plain = Shards(self.path)
        yield from plain.blocks()
        held_out = plain.held_out()
        yield from (part for part in (held_out, plain.test_rows()) if isinstance(part, dict) and part)

    @property
    def num_observations(self) -> int:
        """Training rows as the source counts them."""
        return self.num_rows

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return training rows ``start`` to ``stop - 1``: name -> (stop - start, ...), dtypes as on disk.

        Raises:
            IndexError: the range is not within ``num_rows``.
            StoreError: a chunk of the range is damaged or missing.
        """
        self._check_range(start, stop)
        return {name: self._read(f"rows/{name}", slice(start, stop)) for name in self.fields}

    def read_field(self, name: str, part: str = "rows", start: int = 0, stop: int | None = None) -> np.ndarray:
        """Return one field of a part, rows `start` to ``stop - 1``, as on disk; empty if there is no such part.

        Raises:
            StoreError: a chunk is damaged or missing.
        """
        return self._read(f"{part}/{name}", slice(start, stop)) if name in self._names(part) else np.zeros(0)

    @property
    def group_field(self) -> str | None:
        """Field of the source whose codes sort rows into entries of local latents; None if rows are not sorted."""
        return None

    def prepare(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return rows of the source, name -> (row, ...), converted to the fields that the model reads."""
        return dict(rows)

    def count_levels(self) -> dict[str, dict[str, int]]:
        """Return categorical column -> level -> number of its training rows."""
        found = {}
        for name, about in self.variables.items():
            if about.kind == "category" and name in self.fields and not self.fields[name].shape:
                counts = np.zeros(len(about.levels), np.int64)
                for start in range(0, self.num_rows, BLOCK_ROWS):
                    codes = self._read(f"rows/{name}", slice(start, min(self.num_rows, start + BLOCK_ROWS)))
                    counts += np.bincount(np.asarray(codes, np.int64), minlength=len(counts))
                found[name] = dict(zip(about.levels, counts.tolist(), strict=True))
        return found

    def source_rows(self) -> np.ndarray:
        """Return the number of each training row in the source's order, (num_rows,) int64."""
        return np.arange(self.num_rows)

    def read_chosen(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return some training rows, read one block at a time because a single row costs as much as its shard.

        Args:
            rows: their numbers, ascending.
        """
        parts = []
        for start in range(0, self.num_rows, READ_ROWS):
            stop = min(self.num_rows, start + READ_ROWS)
            chosen = rows[(rows >= start) & (rows < stop)]
            if chosen.size:
                parts.append({name: v[chosen - start] for name, v in self.read_rows(start, stop).items()})
        return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

    def condensed(self) -> Shards:
        """Return the rows from which to sample: these, unless a model condenses them into fewer without loss."""
        return self

    def test_rows(self) -> dict[str, np.ndarray]:
        """Return the published test set, empty without one."""
        return self._read_part("test_rows")

    def held_out(self) -> Interactions | dict[str, np.ndarray] | None:
        """Return the held-out part: films per user, or rows; None if nothing was held out."""
        if self.kind == "rows":
            return self._read_part("held_out_rows") or None
        found = self._read_part("held_out")
        return Interactions(**found) if found else None

    def held_out_clusters(self) -> np.ndarray | None:
        """Return the group of each held-out row, if whole groups were held out: rows of a group are not independent."""
        name, found = self._group.attrs.get(HELD_OUT_GROUPS), self._read_part("held_out_rows")
        return found[name] if isinstance(name, str) and name in found else None

    def left_out(self) -> np.ndarray | None:
        """Return the numbers, in the full training set, of the rows that `held_out` returns; None if this is not a refit."""
        return self._read_part(LEFT_OUT).get("row")

    def unseen(self) -> UnseenUsers | None:
        """Return the users whom the chains do not see; None if all users stayed."""
        found = self._read_part(UNSEEN)
        if not found:
            return None
        return UnseenUsers(found["rows"], found["given"], Interactions(found["indptr"], found["indices"]))

    def unseen_truth(self) -> dict[str, np.ndarray]:
        """Return the latents of these users that generated simulated data; empty for real data."""
        found = self._read_part(UNSEEN)
        return {name.removeprefix("truth_"): values for name, values in found.items() if name.startswith("truth_")}

    def truth(self) -> dict[str, np.ndarray]:
        """Return the latents that generated simulated data; empty for real data."""
        return self._read_part("truth")

    def verify(self) -> None:
        """Read everything as stored and compare it with the fingerprint.

        Raises:
            StoreError: a part is damaged or has changed.
        """
        arrays = {f"{part}/{name}": self._array(f"{part}/{name}") for part in PARTS for name in self._names(part)}
        try:
            found = fingerprint_data(arrays, describe(Shards(self.path)))
        except DAMAGE as error:
            raise StoreError(f"{self.path}: damaged or missing: {error}", REMEDY) from error
        if found != self.fingerprint:
            raise StoreError(f"{self.path}: fingerprint {self.fingerprint} expected, {found} found", REMEDY)

    def _check_range(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of {self.num_rows}")

    def _read_part(self, part: str) -> dict[str, np.ndarray]:
        return {name: self._read(f"{part}/{name}", ...) for name in self._names(part)}

    def _names(self, part: str) -> list[str]:
        try:
            group = self._group.get(part)
            return sorted(group.array_keys()) if isinstance(group, zarr.Group) else []
        except DAMAGE as error:
            raise StoreError(f"{self.path / part}: damaged: {error}", REMEDY) from error

    def _array(self, name: str) -> zarr.Array:
        try:
            array = self._group[name]
            if not isinstance(array, zarr.Array):
                raise ValueError("a group instead of an array")
            return array
        except DAMAGE as error:
            raise StoreError(f"{self.path / name}: damaged or missing: {error}", REMEDY) from error

    def _read(self, name: str, rows: slice | EllipsisType) -> np.ndarray:
        array = self._array(name)
        try:
            return np.asarray(array[rows])
        except DAMAGE as error:
            raise StoreError(f"{self.path / name}: damaged or missing: {error}", REMEDY) from error


def describe(data: Dataset | Shards) -> dict[str, JSON]:
    """Return everything that a model can see except arrays, as plain values; empty parts of tables are left out."""
    described: dict[str, JSON] = {
        "kind": data.kind,
        "constants": {name: np.asarray(value).item() for name, value in data.constants.items()},
        "columns": {name: list(values) for name, values in data.columns.items()},
    }
    if data.variables:
        described["variables"] = {
            # An order is included only where there is one, so that other tables keep their earlier fingerprints.
            name: {
                k: v
                for k, v in {**dataclasses.asdict(about), "levels": list(about.levels)}.items()
                if k != "is_ordered" or v
            }
            for name, about in data.variables.items()
        }
    if data.roles:
        described["roles"] = dict(data.roles)
    if data.labels:
        described["labels"] = {name: list(labels) for name, labels in data.labels.items()}
    return described


def fingerprint_data(arrays: Mapping[str, RowArray], described: Mapping[str, object]) -> str:
    """Return a sha256, in hexadecimal, over decoded values, independent of chunks, compression and storage.

    Args:
        arrays: name -> array; names, dtypes, shapes and values matter, the order of the mapping does not.
        described: everything except arrays (kind, constants, columns), as plain values; the order within lists matters.

    >>> one = fingerprint_data({"a": np.zeros(2), "b": np.ones(1)}, {})
    >>> one == fingerprint_data({"b": np.ones(1), "a": np.zeros(2)}, {})
    True
    >>> one == fingerprint_data({"a": np.zeros((2, 1)), "b": np.ones(1)}, {})
    False
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        # Little-endian everywhere, so that the same data have the same fingerprint on every machine.
        dtype = array.dtype.newbyteorder("<")
        header = json.dumps([name, dtype.str, list(array.shape)])
        digest.update(len(header).to_bytes(8, "little") + header.encode())
        for values in _blocks(array):
            digest.update(np.ascontiguousarray(values, dtype).data if values.size else b"")
    digest.update(json.dumps(described, sort_keys=True, ensure_ascii=False, allow_nan=False).encode())
    return digest.hexdigest()


def _blocks(array: RowArray) -> Iterator[np.ndarray]:
    """Yield consecutive rows of an array, whole shards at a time if it has them; a scalar is yielded as it is."""
    if not array.shape:
        yield np.asarray(array)
        return
    row_bytes = max(1, array.dtype.itemsize * math.prod(array.shape[1:]))
    shard = (getattr(array, "shards", None) or (1,))[0]
    size = shard * max(1, HASHED_BYTES // (shard * row_bytes))
    for start in range(0, array.shape[0], size):
        yield np.asarray(array[start : start + size])
