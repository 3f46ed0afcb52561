"""Shards as models see them: with prepared fields, sorted by group, condensed, as one row, or of many datasets."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.config.data_spec import Condensed, DataSpec, FieldSpec, HostRows, Preparation, Prepare
from bayesmesh.data.shards import Shards
from bayesmesh.data.split import Interactions
from bayesmesh.errors import ConfigError, suggest

GATHERED_ROWS = 65_536
"""Number of the source's rows in memory at a time while rows of groups are collected."""

KEPT_BYTES = 2**28
"""Largest size of sorted rows kept in memory; beyond it, each range of rows reads all blocks again."""

_KEY = "key 'data.replicates': "


class CondensedShards(Shards):
    """Condensed rows in memory; test and held-out rows are those of the shards.

    Args:
        path: folder of the Zarr group.
        rows: condensed rows.
        about: description of the rows for which they stand.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, rows: Condensed, about: DataSpec) -> None:
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
        self._check_range(start, stop)
        return {name: values[start:stop] for name, values in self._rows.items()}


class PreparedShards(Shards):
    """HostRows with the fields that a model has prepared from those of the source.

    Args:
        path: folder of the Zarr group.
        preparation: the model's preparation.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, preparation: Preparation) -> None:
        super().__init__(path)
        self._how, self._source_fields = preparation, self.fields
        self.constants = {**self.constants, **preparation.constants}
        first = self._how.of_rows({name: self._read(f"rows/{name}", slice(0, 1)) for name in self._source_fields}, 1)
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
        self._check_range(start, stop)
        if self._order is None:
            rows = {name: self._read(f"rows/{name}", slice(start, stop)) for name in self._source_fields}
            return self._how.of_rows(rows, stop - start)
        return self.read_chosen(np.arange(start, stop))

    def read_chosen(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return some prepared rows, in the order of their numbers; for a large source, memory also holds one block."""
        chosen = rows if self._order is None else self._order[0][rows]
        found: dict[str, np.ndarray] = {}
        if self._is_small:
            return self._how.of_rows({name: values[chosen] for name, values in self._all_rows.items()}, len(chosen))
        for start in range(0, self.num_rows, GATHERED_ROWS):
            at = np.flatnonzero((chosen >= start) & (chosen < start + GATHERED_ROWS))
            if not at.size and (found or start + GATHERED_ROWS < self.num_rows):
                continue
            block = slice(start, min(self.num_rows, start + GATHERED_ROWS))
            of_source = {name: self._read(f"rows/{name}", block)[chosen[at] - start] for name in self._source_fields}
            for name, values in self._how.of_rows(of_source, len(at)).items():
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
        return self._how.of_rows(rows, len(next(iter(rows.values())))) if rows else {}

    def source_rows(self) -> np.ndarray:
        """Return the number of each training row in the source's order, (num_rows,) int64."""
        return super().source_rows() if self._order is None else self._order[0]

    def test_rows(self) -> dict[str, np.ndarray]:
        """Return the published test set, prepared; empty without one."""
        return self.prepare(super().test_rows())

    def held_out(self) -> Interactions | dict[str, np.ndarray] | None:
        """Return the held-out rows, prepared; None if nothing was held out."""
        found = super().held_out()
        return found if found is None or isinstance(found, Interactions) else self.prepare(found)

    @functools.cached_property
    def _order(self) -> tuple[np.ndarray, np.ndarray] | None:
        """HostRows in the order of their groups, and the number of rows of each group; None if rows are not sorted."""
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


def prepare_rows(prepare: Prepare, spec: DataSpec, rows: HostRows) -> tuple[DataSpec, dict[str, np.ndarray]]:
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


class WholeShards(Shards):
    """All training rows as one row, each field (num_rows, ...); test and held-out rows stay separate rows.

    Args:
        path: folder of the Zarr group.
        prepare: the model's `prepare`, of which only constants and arrays are used.

    Raises:
        StoreError: as for `Shards`.
    """

    def __init__(self, path: Path, prepare: Prepare) -> None:
        super().__init__(path)
        self._length, self.num_rows = self.num_rows, 1
        self._arrays: Mapping[str, np.ndarray] = {}
        self.fields = {
            name: FieldSpec((self._length, *field.shape), field.dtype) for name, field in self.fields.items()
        }
        preparation = prepare(self.spec(), lambda: iter([self.read_rows(0, 1)]))
        if preparation is not None:
            self.constants = {**self.constants, **preparation.constants}
            self._arrays = preparation.arrays

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the one row."""
        return dataclasses.replace(super().spec(dtype), arrays=self._arrays)

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
        self._check_range(start, stop)
        read = slice(0, self._length)
        return {name: self._read(f"rows/{name}", read)[None][start:stop] for name in self.fields}


class ReplicatedShards(Shards):
    """HostRows of many datasets, one dataset after the other; within each, rows keep their order.

    Args:
        shards: the rows as the model reads them.
        field: field of the source with one number per row, equal for all rows of a dataset.
        is_whole: whether the model takes the rows of a dataset together, as one row.

    Attributes:
        replicates: name of the field.
        values: (dataset,) its values, ascending.
        counts: (dataset,) int64, rows of each dataset.

    Raises:
        ConfigError: the field does not exist; or `is_whole` is set and datasets differ in length.
        StoreError: as for `Shards`.
    """

    def __init__(self, shards: Shards, field: str, *, is_whole: bool) -> None:
        super().__init__(shards.path)
        vectors = [name for name, about in self.fields.items() if about.shape == ()]
        if field not in vectors or self.kind != "rows":
            raise ConfigError(f"{_KEY}'{field}' is not a field with one number for each row", suggest(field, vectors))
        if shards.spec().entry_counts:
            raise ConfigError(
                f"{_KEY}the model sorts rows by a group, whose effects follow the rows",
                "let effects of groups not follow the rows, or sample each dataset as an experiment of a sweep",
            )
        self.replicates, self._shards, self._is_whole = field, shards, is_whole
        codes = np.asarray(self._read(f"rows/{field}", ...))
        self.values, self.counts = np.unique(codes, return_counts=True)
        self._order = np.argsort(codes, kind="stable")
        self.constants, self.fields = shards.constants, shards.fields
        if is_whole:
            self._check_equal()
            length = int(self.counts[0])
            self.num_rows = len(self.counts)
            self.fields = {name: FieldSpec((length, *about.shape), about.dtype) for name, about in self.fields.items()}

    def _check_equal(self) -> None:
        if len(set(self.counts.tolist())) > 1:
            raise ConfigError(
                f"{_KEY}the model takes all rows of a dataset together, and datasets have {self.counts.min()} to"
                f" {self.counts.max()} rows",
                "use datasets of one length, or a model whose log likelihood has one value for each row",
            )

    @property
    def names(self) -> list[str]:
        """Names of the datasets: levels of a category, or the values of the field."""
        about = self.variables.get(self.replicates)
        if about is not None and about.levels:
            return [about.levels[int(code)] for code in self.values]
        return [f"{value}" for value in self.values.tolist()]

    @property
    def num_observations(self) -> int:
        """HostRows of all datasets, as the source counts them."""
        return len(self._order)

    def spec(self, dtype: str = "float32") -> DataSpec:
        """Return the description of the longest dataset, with the rows of each."""
        counts = (1,) * len(self.counts) if self._is_whole else tuple(self.counts.tolist())
        of_all = self._shards.spec(dtype)
        # Arrays describe the rows of all datasets together, not those of a single one.
        return dataclasses.replace(of_all, num_rows=max(counts), fields=self.fields, dataset_counts=counts, arrays={})

    def read_rows(self, start: int, stop: int) -> dict[str, np.ndarray]:
        """Return rows ``start`` to ``stop - 1``, numbered dataset after dataset; whole datasets if these are the rows.

        Raises:
            IndexError: the range is not within ``num_rows``.
            StoreError: a chunk is damaged or missing.
        """
        self._check_range(start, stop)
        return {name: values[start:stop] for name, values in self._sorted_rows.items()}

    @functools.cached_property
    def _sorted_rows(self) -> dict[str, np.ndarray]:
        """All rows, in memory: rows of a dataset may be anywhere in the shards, and the devices hold all rows anyway."""
        rows = {name: v[self._order] for name, v in self._shards.read_rows(0, len(self._order)).items()}
        if not self._is_whole:
            return rows
        return {name: v.reshape(len(self.counts), -1, *v.shape[1:]) for name, v in rows.items()}
