"""Write the draws of predictions, block of rows by block of rows: a Zarr store of ArviZ's schema, or a Parquet file."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow
import pyarrow.parquet
import zarr
from jaxtyping import Float

from bayesmesh.errors import ConfigError
from bayesmesh.files import atomic_folder, atomic_path
from bayesmesh.store.arrays import (
    CHUNK_BYTES,
    DESCRIPTION,
    consolidate,
    create_array,
    create_texts,
    open_group,
    write_array,
    write_texts,
)
from bayesmesh.store.layout import CHAIN, DRAW, ROW
from bayesmesh.store.posterior.attributes import describe_groups
from bayesmesh.store.posterior.axes import GroupCoordinates, is_free

GROUP, CONSTANTS = "predictions", "predictions_constant_data"

_OTHERS = {"mean", "probability", "class"}
"""Names of arrays beside that of the outcome."""

TABLE_CELLS = 2**20
"""Most draws x rows that are in memory as a table."""


class PredictedDraws(NamedTuple):
    """What is drawn.

    Attributes:
        outcome: name of the outcome.
        levels: names of the classes; empty for a number.
        classes: those whose probabilities are given; for two classes, only the second.
        has_mean: whether the distribution of a number knows its expectation.
        num_chains, num_draws, num_rows: lengths of the axes.
        block_rows: rows of a block.
        constants: returns the predictors of a range of rows as the group ``constant_data`` of the posterior has them.
        created_at: time at which the chains of the posterior began.
    """

    outcome: str
    levels: Sequence[str]
    classes: Sequence[str]
    has_mean: bool
    num_chains: int
    num_draws: int
    num_rows: int
    block_rows: int
    constants: Callable[[slice], Mapping[str, np.ndarray]]
    created_at: str


class DrawsWriter(Protocol):
    """Writes a block of draws."""

    def write(
        self, start: int, centres: Float[np.ndarray, "draw row class"], outcomes: Float[np.ndarray, "draw row"]
    ) -> None:
        """Write a block.

        Args:
            start: number of the first row.
            centres: probabilities, or expectations of the outcome, (draw, row, 1).
            outcomes: simulated outcomes: numbers, or codes of classes.
        """


def check_draws_path(path: Path) -> None:
    """Check the ending of a path, and that it takes the place of nothing but earlier draws.

    Raises:
        ConfigError: the message names the path and the remedy.
    """
    if path.suffix not in (".zarr", ".parquet"):
        near = path.with_suffix(".parquet").name
        raise ConfigError(f"--draws {path}: its ending is neither .zarr nor .parquet", f"write, for example, {near}")
    if (
        path.suffix == ".zarr"
        and path.is_dir()
        and not {p.name for p in path.iterdir()} <= {DESCRIPTION, GROUP, CONSTANTS}
    ):
        raise ConfigError(f"--draws {path}: this folder does not hold draws of predictions alone", "choose another name, or move the folder away")  # fmt: skip


@contextlib.contextmanager
def draws_writer(path: Path, about: PredictedDraws) -> Iterator[DrawsWriter]:
    """Yield a writer for a path that `check_draws_path` accepts; the path holds the draws when all are written."""
    if path.suffix == ".parquet":
        with atomic_path(path) as partial, _Table(partial, about) as table:
            yield table
        return
    with contextlib.ExitStack() as at_end, atomic_folder(path) as folder:
        # By then it has its own name, unless writing has failed.
        at_end.callback(shutil.rmtree, folder, ignore_errors=True)
        yield _Store(folder, about)


class _Store:
    def __init__(self, path: Path, about: PredictedDraws) -> None:
        self._shape = shape = (about.num_draws, about.num_chains)
        root = open_group(path, "w")
        group, self._read = root.create_group(GROUP, attributes={"outcome": about.outcome}), about.constants
        sizes = {CHAIN: np.arange(about.num_chains), DRAW: np.arange(about.num_draws), ROW: np.arange(about.num_rows) + 1}  # fmt: skip
        for name, numbers in sizes.items():
            write_array(group, name, numbers, (name,))
        self._constants = _create_constants(root.create_group(CONSTANTS), about)
        whole = (*shape[::-1], about.num_rows)
        # Each chunk lies in one block of rows, so that it is written once.
        chunks = (1, min(about.num_draws, max(1, CHUNK_BYTES // (8 * about.block_rows))), about.block_rows)
        attributes = {"levels": [*about.levels]} if about.levels else {}
        dtype = np.int32 if about.levels else np.float64
        outcome = about.outcome if is_free(about.outcome) and about.outcome not in _OTHERS else "outcome"
        self._outcomes = create_array(group, outcome, whole, dtype, tuple(sizes), chunks=chunks, attributes=attributes)  # fmt: skip
        self._centres = None
        if about.classes:
            write_texts(group, "class", about.classes, ("class",))
            every, of_class = (*whole, len(about.classes)), (*chunks, 1)
            self._centres = create_array(group, "probability", every, np.float64, (*sizes, "class"), chunks=of_class)
        elif about.has_mean:
            self._centres = create_array(group, "mean", whole, np.float64, tuple(sizes), chunks=chunks)
        describe_groups(root, about.created_at)
        consolidate(root)

    def write(self, start: int, centres: np.ndarray, outcomes: np.ndarray) -> None:
        rows = slice(start, start + outcomes.shape[1])
        self._outcomes[:, :, rows] = self._of_chains(outcomes)
        for name, values in self._read(rows).items():
            self._constants[name][rows] = values
        if self._centres is not None:
            values = centres if self._centres.ndim == 4 else centres[..., 0]
            self._centres[:, :, rows] = self._of_chains(values)

    def _of_chains(self, values: np.ndarray) -> np.ndarray:
        """Return (chain, draw, row, ...) of values that are ordered draw by draw."""
        return values.reshape(*self._shape, *values.shape[1:]).swapaxes(0, 1)


def _create_constants(group: zarr.Group, about: PredictedDraws) -> dict[str, zarr.Array]:
    """Return empty arrays for the constants of all rows."""
    first, rows = about.constants(slice(0, 1)), about.block_rows
    found, coordinates = {}, GroupCoordinates({}, first)
    for name, values in first.items():
        if values.dtype.kind == "T":
            found[name] = create_texts(group, name, about.num_rows, (ROW,), rows)
            continue
        dims, shape = (ROW, *coordinates.dims(name, values.shape[1:])), (about.num_rows, *values.shape[1:])
        found[name] = create_array(group, name, shape, values.dtype, dims, chunks=(rows, *values.shape[1:]))
    write_array(group, ROW, np.arange(about.num_rows) + 1, (ROW,))
    coordinates.write(group)
    return found


class _Table(contextlib.AbstractContextManager["_Table"]):
    def __init__(self, path: Path, about: PredictedDraws) -> None:
        self._about = about
        names = [f"probability[{name}]" for name in about.classes] or (["mean"] if about.has_mean else [])
        outcome = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) if about.levels else pyarrow.float64()
        places = [("row", pyarrow.int64()), (CHAIN, pyarrow.int32()), (DRAW, pyarrow.int32())]
        self._schema = pyarrow.schema([*places, *((name, pyarrow.float64()) for name in names), ("outcome", outcome)])
        self._num_centres = len(names)
        self._file = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, start: int, centres: np.ndarray, outcomes: np.ndarray) -> None:
        about, num_draws = self._about, len(outcomes)
        draw, chain = np.divmod(np.arange(num_draws, dtype=np.int32), np.int32(about.num_chains))
        order = np.lexsort((draw, chain))
        step = max(1, TABLE_CELLS // num_draws)
        for first in range(0, outcomes.shape[1], step):
            rows = slice(first, min(first + step, outcomes.shape[1]))
            number = rows.stop - rows.start
            places = [np.repeat(start + 1 + np.arange(*rows.indices(rows.stop)), num_draws)]
            places += [np.tile(each[order], number) for each in (chain, draw)]
            cells = centres[order, rows, : self._num_centres].transpose(2, 1, 0).reshape(self._num_centres, -1)
            drawn = outcomes[order, rows].T.reshape(-1)
            last = pyarrow.DictionaryArray.from_arrays(drawn.astype(np.int32), [*about.levels]) if about.levels else pyarrow.array(drawn)  # fmt: skip
            columns = [*map(pyarrow.array, places), *map(pyarrow.array, cells), last]
            self._file.write_table(pyarrow.Table.from_arrays(columns, schema=self._schema))
