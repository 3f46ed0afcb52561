"""The contract of a data source, and the dataset that it reads."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np

from bayesmesh.config.data_spec import DataSpec as DataSpec
from bayesmesh.config.data_spec import FieldSpec as FieldSpec
from bayesmesh.config.data_spec import Variable as Variable
from bayesmesh.config.settings import Settings
from bayesmesh.files import JSON

type Column = list[int] | list[str] | list[list[str]]
"""One value per column of a row: ids, titles, or the genres of each film."""


FIELD_NAME = re.compile(r"(?!__|\.{1,2}$|zarr\.json$)[^/\x00-\x1f]{1,200}")
"""Matches the names that a field may have: each becomes a folder of the shards, beside Zarr's own file."""


class RowArray(Protocol):
    """One entry per row; any range can be read by itself: a NumPy array, or a Zarr or HDF5 array larger than memory."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    def __getitem__(self, rows: slice, /) -> Any: ...


@dataclasses.dataclass(frozen=True)
class Dataset:
    """The decoded arrays of a dataset, in the order in which the source defines its rows.

    Attributes:
        rows: name -> array of shape (num_rows, ...), the likelihood's data; small integer types are kept. Arrays are read
            in blocks, from the first row to the last.
        test_rows: the published test set, with the same names as `rows`; empty without one.
        columns: name -> one value per column of a row (film titles, genres), as plain lists; for tables and reports.
        constants: scalars that models need, such as ``num_classes`` or ``feature_scale``.
        declared_counts: counts that the source guarantees, such as ``{"rows": 60000, "test_rows": 10000}``; checked.
        truth: latent name -> array, for simulated data. For a watch matrix, names of latents with an entry per user begin
            with ``user_``.
        variables: column of a table -> meaning of its numbers, in the field of its name or in one of `labels`.
        labels: field -> names along its last axis, such as the columns of a matrix.
        roles: ``weights``, ``offset`` or ``exposure`` -> field, see the source `table`.
        facts: facts for the page that a reader of the results should know, such as how many rows were left out, as plain
            values.
        ordered: categories whose levels have a declared order; the codes of others imply no earlier or later.
        absent: field -> array of rows, 1 where a row lacks a value and the field holds a placeholder for it.
        kind: ``rows`` (a table of independent rows) or ``interactions`` (users x films, in ``rows["watched"]``).
    """

    rows: Mapping[str, RowArray]
    test_rows: Mapping[str, RowArray] = dataclasses.field(default_factory=dict)
    columns: Mapping[str, Column] = dataclasses.field(default_factory=dict)
    constants: Mapping[str, float | int] = dataclasses.field(default_factory=dict)
    declared_counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    truth: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, Variable] = dataclasses.field(default_factory=dict)
    labels: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, JSON] = dataclasses.field(default_factory=dict)
    ordered: Collection[str] = ()
    absent: Mapping[str, RowArray] = dataclasses.field(default_factory=dict)
    kind: Literal["rows", "interactions"] = "rows"


class Source(ABC):
    """A dataset: how to fetch it and how to read it. Heavy imports belong inside the methods.

    Class attributes:
        pretty_name: name in tables.
        offers: needs of analyses that the data satisfy (their `needs_of_source`; docs/contracts/source.md lists them).
            Read from the source text before any job starts; a class without it is checked in the compile stage.
        mirror_files: patterns of the files in ``BAYESMESH_MIRROR`` that `fetch` reads; also read from the source text.
        image_shape: rows and columns of the image whose pixels, row by row, are the field ``features``; also read from
            the source text. The page then shows weights as images.

    Other files that `fetch` reads are options of type `bayesmesh.config.settings.Files`. Both kinds are inputs of the
    job, which runs again if their content changes.
    """

    pretty_name: ClassVar[str]
    offers: ClassVar[tuple[str, ...]]
    mirror_files: ClassVar[tuple[str, ...]] = ()
    image_shape: ClassVar[tuple[int, int] | None] = None
    options: Settings
    """A subclass declares its own class of options."""

    def __init__(self, options: Settings) -> None:
        self.options = options

    def fetch(self, folder: Path) -> Mapping[str, object]:
        """Fetch the files into `folder` and verify them; embedded and simulated sources need not override this.

        Returns:
            The origin of the files, for the manifest: URLs or paths, sha256 sums, and versions.

        Raises:
            DataError: the files are unavailable (raised within 10 seconds, with the command that helps), or a file is
                damaged; the message names it.
        """
        del folder
        return {"origin": "embedded"}

    @abstractmethod
    def read(self, folder: Path) -> Dataset:
        """Decode the fetched files.

        Raises:
            DataError: a file is invalid; the message names the file and the row.
        """
