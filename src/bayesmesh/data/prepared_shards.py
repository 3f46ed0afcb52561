"""Shards as seen by models that prepare their rows: with other fields, and with rows sorted by group."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.condensed_shards import CondensedLike, CondensedShards
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions

GATHERED_ROWS = 65_536
"""Number of the source's rows in memory at a time while rows of groups are collected."""

KEPT_BYTES = 2**28
"""Largest size of sorted rows kept in memory; beyond it, each range of rows reads all blocks again."""

Rows = Mapping[str, np.ndarray]
ReadBlocks = Callable[[], Iterator[Rows]]


class PreparationLike(Protocol):
    """See `bayesmesh.models.base.Preparation`."""

    @property
    def of_rows(self) -> Callable[[Rows, int], dict[str, np.ndarray]]: ...
    @property
    def constants(self) -> Mapping[str, float | int]: ...
    @property
    def group_field(self) -> str | None: ...
    @property
    def num_groups(self) -> int: ...
    @property
    def arrays(self) -> Mapping[str, np.ndarray]: ...
    @property
    def condense(self) -> Callable[[], CondensedLike | None] | None: ...


Prepare = Callable[[DataSpec, ReadBlocks], PreparationLike | None]
"""A model's `prepare`, with its options."""


class PreparedShards(Shards):
    """Rows with the fields that a model has prepared from those of the source.

    Args:
        path: folder of the Zarr group.
        preparation: the model's preparation.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, preparation: PreparationLike) -> None:
        super().__init__(path)
        self._how, self._source_fields = preparation, self.fields
        self.constants = {**self.constants, **preparation.constants}
        first = self._prepared({name: self._read(f"rows/{name}", slice(0, 1)) for name in self._source_fields}, 1)
        self.fields = {name: FieldSpec(v.shape[1:], v.dtype.name) for name, v in first.items()}

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the prepared data."""
        counts = () if self._order is None else tuple(self._order[1].tolist())
        more: dict[str, Any] = {"source_fields": self._source_fields, "arrays": self._how.arrays}
        return dataclasses.replace(super().spec(dtype), entry_counts=counts, **more)

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return prepared rows ``start`` to ``stop - 1``, numbered in the order of groups if rows are sorted.

        Raises:
            IndexError: the range is not within ``num_rows``.
            StoreError: a chunk of the range is damaged or missing.
        """
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of {self.num_rows}")
        if self._order is None:
            rows = {name: self._read(f"rows/{name}", slice(start, stop)) for name in self._source_fields}
            return self._prepared(rows, stop - start)
        return self.read_chosen(np.arange(start, stop))

    def read_chosen(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return some prepared rows, in the order of their numbers; for a large source, memory also holds one block."""
        chosen = rows if self._order is None else self._order[0][rows]
        found: dict[str, np.ndarray] = {}
        if self._is_small:
            return self._prepared({name: values[chosen] for name, values in self._all_rows.items()}, len(chosen))
        for start in range(0, self.num_rows, GATHERED_ROWS):
            at = np.flatnonzero((chosen >= start) & (chosen < start + GATHERED_ROWS))
            if not at.size and (found or start + GATHERED_ROWS < self.num_rows):
                continue
            block = slice(start, min(self.num_rows, start + GATHERED_ROWS))
            of_source = {name: self._read(f"rows/{name}", block)[chosen[at] - start] for name in self._source_fields}
            for name, values in self._prepared(of_source, len(at)).items():
                found.setdefault(name, np.empty((len(chosen), *values.shape[1:]), values.dtype))[at] = values
        return found

    def condensed(self) -> Shards:
        """Return rows that stand for many, if the model makes any; see `bayesmesh.models.base.Condensed`."""
        rows = None if self._how.condense is None else self._how.condense()
        return self if rows is None else CondensedShards(self.path, rows, self.spec())

    @property
    def group_field(self) -> str | None:
        """Field of the source whose codes sort rows into entries of local latents; None if rows are not sorted."""
        return self._how.group_field

    def prepare(self, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return rows of the source, name -> (row, ...), converted to the fields that the model reads."""
        return self._of_part(dict(rows))

    def source_rows(self) -> np.ndarray:
        """Return the number of each training row in the source's order, (num_rows,) int64."""
        return super().source_rows() if self._order is None else self._order[0]

    def test_rows(self) -> dict[str, np.ndarray]:
        """Return the published test set, prepared; empty without one."""
        return self._of_part(super().test_rows())

    def held_out(self) -> Interactions | dict[str, np.ndarray] | None:
        """Return the held-out rows, prepared; None if nothing was held out."""
        found = super().held_out()
        return found if found is None or isinstance(found, Interactions) else self._of_part(found)

    def verify(self) -> None:
        """Read everything as stored and compare it with the fingerprint.

        Raises:
            StoreError: a part is damaged or has changed.
        """
        Shards(self.path).verify()

    def _of_part(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self._prepared(rows, len(next(iter(rows.values())))) if rows else {}

    def _prepared(self, rows: Rows, num_rows: int) -> dict[str, np.ndarray]:
        return self._how.of_rows(rows, num_rows)

    @functools.cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Rows in the order of their groups, and the number of rows of each group; None if rows are not sorted."""
        if self._how.group_field is None:
            return None
        codes = np.asarray(self._read(f"rows/{self._how.group_field}", ...))
        return np.argsort(codes, kind="stable"), np.bincount(codes, minlength=self._how.num_groups)

    @property
    def _is_small(self) -> bool:
        """Whether sorted rows of the source are kept in memory, because rows of a group may be anywhere in the shards."""
        per_row = sum(np.dtype(f.dtype).itemsize * math.prod(f.shape) for f in self._source_fields.values())
        return self._order is not None and per_row * self.num_rows <= KEPT_BYTES

    @functools.cached_property
    def _all_rows(self) -> dict[str, np.ndarray]:
        return {name: self._read(f"rows/{name}", ...) for name in self._source_fields}


def prepared(path: Path, prepare: Prepare) -> Shards:
    """Return shards as a model needs them: prepared or unchanged.

    Args:
        path: folder of the Zarr group.
        prepare: the model's `prepare`.
    """
    shards = Shards(path)

    preparation = prepare(shards.spec(), shards.blocks)
    return shards if preparation is None else PreparedShards(path, preparation)


def prepare_rows(prepare: Prepare, spec: DataSpec, rows: Rows) -> tuple[DataSpec, dict[str, np.ndarray]]:
    """Return the description and the rows that a model needs, prepared from rows in memory.

    Args:
        prepare: the model's `prepare`.
        spec: description of the rows.
        rows: field -> (row, ...).
    """
    preparation = prepare(spec, lambda: iter([rows]))
    if preparation is None:
        return spec, dict(rows)
    more: dict[str, Any] = {"constants": {**spec.constants, **preparation.constants}, "source_fields": spec.fields}
    more["arrays"] = preparation.arrays
    chosen = dict(rows)
    if preparation.group_field is not None:
        codes = rows[preparation.group_field]
        order = np.argsort(codes, kind="stable")
        chosen = {name: values[order] for name, values in rows.items()}
        more["entry_counts"] = tuple(np.bincount(codes, minlength=preparation.num_groups).tolist())
    made = preparation.of_rows(chosen, spec.num_rows)
    fields = {name: FieldSpec(v.shape[1:], v.dtype.name) for name, v in made.items()}
    return dataclasses.replace(spec, fields=fields, **more), made
