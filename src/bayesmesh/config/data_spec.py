"""The description of the data that a model receives before any row, and how a model prepares the rows of a source.

Sources and models share these types and do not import each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np

HostRows = Mapping[str, np.ndarray]
"""Field -> (row, ...), on the host."""

ReadBlocks = Callable[[], Iterator[HostRows]]
"""Reads all rows, block by block."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """The meaning of a table column's values in the field of the same name.

    Attributes:
        kind: ``number``, or ``category`` where the field holds codes.
        levels: names of the codes 0, 1, ... of a category.
        mean: subtracted from the numbers of the table, in their unit.
        scale: divisor of the numbers after the mean is subtracted, in their unit.
        is_ordered: whether the order of the levels was declared; otherwise they are in alphabetical order.
    """

    kind: Literal["number", "category"]
    levels: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    is_ordered: bool = False


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """A field of the data.

    Attributes:
        shape: shape of one row, without the row axis.
        dtype: dtype on disk.
        num_codes: for a field with one integer per row, of which none is negative, 1 more than the largest over all rows,
            including held-out ones; 0 if unknown.
    """

    shape: tuple[int, ...]
    dtype: str
    num_codes: int = dataclasses.field(default=0, compare=False)


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The description of the data that a model receives before any row.

    Attributes:
        num_rows: rows that the likelihood counts, without padding.
        fields: name -> shape and dtype of one row.
        constants: scalars of the dataset.
        dtype: ``float32`` or ``float64``, the type of latents and of arithmetic.
        entry_counts: rows of each entry of local latents, where several rows share one, such as those of a group; rows
            are sorted by entry. Empty where every row is an entry.
        variables: column of a table -> meaning of its numbers, in the field of its name or in one of `labels`.
        labels: field -> names along its last axis.
        roles: ``weights``, ``offset`` or ``exposure`` -> field of the source.
        source_fields: fields of the source, if a model has prepared others from them; otherwise empty.
        dataset_counts: rows of each dataset, if the rows come from many datasets, one after the other; `num_rows` is then
            the largest of these counts. Empty for a single dataset.
        arrays: arrays for the whole dataset that a model has prepared in addition to `constants`.
        is_condensed: whether each row stands for many rows of the source.
        are_sums: whether rows are sums over many others, whose likelihood is computed in float64.
    """

    num_rows: int
    fields: Mapping[str, FieldSpec]
    constants: Mapping[str, float | int]
    dtype: str = "float32"
    entry_counts: tuple[int, ...] = ()
    variables: Mapping[str, Variable] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    source_fields: Mapping[str, FieldSpec] = dataclasses.field(default_factory=dict)
    dataset_counts: tuple[int, ...] = ()
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    is_condensed: bool = False
    are_sums: bool = False

    @property
    def num_entries(self) -> int:
        """Length of the axis of local latents: users, groups or rows."""
        return len(self.entry_counts) or self.num_rows

    def entries_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the entry of local latents to which each of the given rows belongs.

        >>> DataSpec(6, {}, {}, entry_counts=(1, 3, 2)).entries_of(np.array([0, 3, 4])).tolist()
        [0, 1, 2]
        """
        return np.searchsorted(np.cumsum(self.entry_counts), rows, side="right") if self.entry_counts else rows

    def with_dtype(self, dtype: str) -> DataSpec:
        """Return the description of the same data for latents and arithmetic in another dtype."""
        return dataclasses.replace(self, dtype=dtype)


class Condensed(NamedTuple):
    """Rows that stand for many others and have the same total log likelihood; models read them in `log_likelihood` alone.

    Attributes:
        fields: field -> (row, ...), in the order of the entries of local latents.
        entry_counts: rows of each entry; empty without local latents, or where each has one row.
        are_sums: whether each row holds sums over the rows that it stands for. Its log likelihood, which may be 1e8 nats,
            is computed in float64, from latents that have not been rounded.
    """

    fields: dict[str, np.ndarray]
    entry_counts: tuple[int, ...]
    are_sums: bool = False


class Preparation(NamedTuple):
    """How the rows of a source are prepared for a model; see `Model.prepare`.

    Attributes:
        of_rows: maps any rows of the source, and their number, to the fields that the model reads.
        constants: scalars added to the constants of the dataset.
        arrays: further constants that are whole arrays, for `DataSpec.arrays`.
        group_field: field of the source whose codes 0, 1, ... are the entries of local latents; rows are sorted by it.
        num_groups: number of codes.
        condense: returns rows from which to sample instead, or None if those of the source serve as well.
    """

    of_rows: Callable[[HostRows, int], dict[str, np.ndarray]]
    constants: Mapping[str, float | int]
    group_field: str | None = None
    num_groups: int = 0
    arrays: Mapping[str, np.ndarray] = MappingProxyType({})
    condense: Callable[[], Condensed | None] | None = None


Prepare = Callable[[DataSpec, ReadBlocks], Preparation | None]
"""A model's `prepare`, with its options."""
