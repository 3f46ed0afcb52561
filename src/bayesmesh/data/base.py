"""The contract of a data source, and the dataset that it reads."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from bayesmesh.config.settings import Settings

type Column = list[int] | list[str] | list[list[str]]
"""One value per column of a row: ids, titles, or the genres of each film."""


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The decoded arrays of a dataset, in the order in which the source defines its rows.

    Attributes:
        rows: name -> array of shape (num_rows, ...), the likelihood's data; small integer types stay as they are.
        test_rows: the published test set, with the same names as `rows`; empty without one.
        columns: name -> one value per column of a row (film titles, genres), as plain lists; for tables and reports.
        constants: scalars that models need, such as ``num_classes`` or ``feature_scale``.
        declared_counts: counts that the source guarantees, such as ``{"rows": 60000, "test_rows": 10000}``; checked.
        truth: latent name -> array, for simulated data.
        kind: ``rows`` (a table of independent rows) or ``interactions`` (users x films, in ``rows["watched"]``).
    """

    rows: Mapping[str, np.ndarray]
    test_rows: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    declared_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    truth: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    kind: Literal["rows", "interactions"] = "rows"


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """Shape of one row of a field, without the row axis, and its dtype on disk."""

    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class DataSpec:
    """The description of the data that a model gets before any row.

    Attributes:
        num_rows: rows that the likelihood counts, without padding.
        fields: name -> shape and dtype of one row.
        constants: scalars of the dataset.
        dtype: ``float32`` or ``float64``, the type of latents and of arithmetic.
        entry_counts: rows of each entry of local latents, where several rows share one, such as those of a group; rows
            are sorted by entry. Empty where every row is an entry.
    """

    num_rows: int
    fields: Mapping[str, FieldSpec]
    constants: Mapping[str, float | int]
    dtype: str = "float32"
    entry_counts: tuple[int, ...] = ()

    @property
    def num_entries(self) -> int:
        """Length of the axis of local latents: users, groups or rows."""
        return len(self.entry_counts) or self.num_rows

    def entries_of(self, rows: np.ndarray) -> np.ndarray:
        """Return the entry of local latents that each of some rows belongs to.

        >>> DataSpec(6, {}, {}, entry_counts=(1, 3, 2)).entries_of(np.array([0, 3, 4])).tolist()
        [0, 1, 2]
        """
        return np.searchsorted(np.cumsum(self.entry_counts), rows, side="right") if self.entry_counts else rows

    def with_dtype(self, dtype: str) -> DataSpec:
        """Return the same data for latents and arithmetic in another dtype."""
        return dataclasses.replace(self, dtype=dtype)


class Source(ABC):
    """A dataset: how to get it and how to read it. Heavy imports belong inside the methods.

    Class attributes:
        pretty_name: name in tables.
        offers: needs of analyses that the data satisfy (their `needs_of_source`; docs/contracts/source.md lists them).
            Read from the source text before any job starts; a class without it is checked in the compile stage.
    """

    pretty_name: ClassVar[str]
    offers: ClassVar[tuple[str, ...]]
    options: Settings
    """A subclass declares its own class of options."""

    def __init__(self, options: Settings) -> None:
        self.options = options

    def fetch(self, folder: Path) -> Mapping[str, object]:
        """Bring the files into `folder` and verify them; embedded and simulated sources need not override this.

        Returns:
            The origin of the files, for the manifest: urls or paths, sha256 sums, versions.

        Raises:
            DataError: within 10 seconds if the files are unavailable, with the command that helps; or if a file is damaged,
                naming it.
        """
        del folder
        return {"origin": "embedded"}

    @abstractmethod
    def read(self, folder: Path) -> Dataset:
        """Decode the fetched files.

        Raises:
            DataError: naming the file and the row.
        """
