"""Shards of many datasets: rows sorted by the field that distinguishes the datasets."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, suggest

_KEY = "key 'data.replicates': "


class ReplicatedShards(Shards):
    """Rows of many datasets, one dataset after the other; within each, rows keep their order.

    Args:
        shards: the rows as the model reads them.
        field: field of the source with one number per row, equal for all rows of a dataset.
        is_whole: whether the model takes the rows of a dataset together, as one row.

    Attributes:
        replicates: name of the field.
        values: (dataset,) its values, ascending.
        counts: (dataset,) int64, rows of each dataset.

    Raises:
        ConfigError: there is no such field; or `is_whole` is set and datasets differ in length.
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
        """Rows of all datasets, as the source counts them."""
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
        if not 0 <= start <= stop <= self.num_rows:
            raise IndexError(f"rows {start} to {stop} of {self.num_rows}")
        return {name: values[start:stop] for name, values in self._sorted_rows.items()}

    def verify(self) -> None:
        """Read everything as stored and compare it with the fingerprint.

        Raises:
            StoreError: a part is damaged or has changed.
        """
        Shards(self.path).verify()

    @functools.cached_property
    def _sorted_rows(self) -> dict[str, np.ndarray]:
        """All rows, in memory: rows of a dataset may be anywhere in the shards, and the devices hold all rows anyway."""
        rows = {name: v[self._order] for name, v in self._shards.read_rows(0, len(self._order)).items()}
        if not self._is_whole:
            return rows
        return {name: v.reshape(len(self.counts), -1, *v.shape[1:]) for name, v in rows.items()}
