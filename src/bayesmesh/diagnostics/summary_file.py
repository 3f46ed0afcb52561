"""Write ``summary.csv``: a row of convergence statistics for each coordinate, block by block in bounded memory."""

from __future__ import annotations

import contextlib
import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import pandas as pd
import zarr
from jaxtyping import Float, Int, Shaped

from bayesmesh.diagnostics.chance import chance_of_r_hat
from bayesmesh.diagnostics.convergence import STATISTICS, convergence_table, within
from bayesmesh.diagnostics.coordinates import (
    choose_coordinates,
    coordinate_blocks,
    coordinate_indices,
    coordinate_labels,
    event_size,
)
from bayesmesh.diagnostics.finite import NonFinite
from bayesmesh.diagnostics.movement import Movement
from bayesmesh.diagnostics.repeats import repeats
from bayesmesh.files import atomic_path
from bayesmesh.store.named_axes import read_labels

READ_BYTES = 64 * 2**20
"""Limit of the draws in memory, in bytes, and of the data read at a time."""

SUMMARY_COLUMNS = ("variable", "index", "label", *STATISTICS)
"""Columns of summary.csv; a label is the index with names of levels and columns, where axes have them."""


class Names(NamedTuple):
    """Names of some coordinates of a variable: indices such as ``3,7``, and labels such as ``elm,intercept`` or empty."""

    variable: str
    indices: list[str]
    labels: list[str]

    def places(self) -> list[str]:
        """Return whole names, such as ``b_species[elm]``."""
        pairs = zip(self.labels, self.indices, strict=True)
        return [f"{self.variable}[{label or index}]" if label or index else self.variable for label, index in pairs]


def name_coordinates(group: zarr.Group, name: str, array: zarr.Array, positions: Int[np.ndarray, " n"]) -> Names:
    """Return the names of coordinates of an array of the group at some flat positions."""
    shape = array.shape[2:]
    labels = coordinate_labels(positions, shape, read_labels(group, array))
    return Names(name, coordinate_indices(positions, shape), labels)


@contextlib.contextmanager
def writing_summary(path: Path, num_threads: int) -> Iterator[SummaryFile]:
    """Yield a new summary file, which replaces the present one on success.

    Args:
        path: the file; draws that are put in another order lie in a temporary file in its folder.
        num_threads: threads for the statistics.
    """
    with atomic_path(path) as partial, partial.open("w", encoding="utf-8", newline="") as file:
        yield SummaryFile(file, path.parent, num_threads)


class SummaryFile:
    """Compute the statistics of variables and write their rows; see `writing_summary`.

    Attributes:
        num_rows: rows written so far.
    """

    def __init__(self, file: TextIO, scratch: Path, num_threads: int) -> None:
        self._rows = csv.writer(file, lineterminator="\n")
        self._rows.writerow(SUMMARY_COLUMNS)
        self._scratch, self._num_threads, self.num_rows = scratch, num_threads, 0

    def add_monitored(
        self,
        group: zarr.Group,
        arrays: Mapping[str, zarr.Array],
        limit: float,
        movement: Movement,
        non_finite: NonFinite,
    ) -> pd.DataFrame:
        """Write all coordinates of the arrays that gates assess.

        Args:
            group: of the arrays.
            arrays: name -> dimensions (chain, draw, ...).
            limit: R-hat above which its chance is computed.
            movement, non_finite: collect what the draws show.

        Returns:
            The columns of the file and `chance`, which is 1 up to the limit of R-hat.
        """
        found = [pd.DataFrame({name: [] for name in (*SUMMARY_COLUMNS, "chance")})]
        for name, array in arrays.items():
            for positions, draws in self._blocks(array, None):
                movement.add(draws)
                names = name_coordinates(group, name, array, positions)
                non_finite.add(draws, names.places())
                table = convergence_table(draws, num_threads=self._num_threads)
                self._write(names, table)
                chance = np.ones(len(positions))
                exceeds = ~within(table["r_hat"], limit, is_upper=True)
                chance[exceeds] = chance_of_r_hat(draws[:, :, exceeds])
                found.append(_rows(names, table).assign(chance=chance))
        return pd.concat(found[1:], ignore_index=True) if len(found) > 1 else found[0]

    def add_latent(
        self,
        group: zarr.Group,
        name: str,
        array: zarr.Array,
        most: int | None,
        monitored: pd.DataFrame,
        movement: Movement,
    ) -> int:
        """Write the coordinates of a latent, at most `most` of them, but none that summaries repeat.

        Args:
            group: of the array.
            name: of the latent.
            array: dimensions (chain, draw, ...).
            most: coordinates, evenly spaced; all if None.
            monitored: rows of the summaries, as `add_monitored` returns them.
            movement: collects what the draws show.

        Returns:
            The number of coordinates looked at.
        """
        count, held = 0, []
        for positions, draws in self._blocks(array, most):
            movement.add(draws)
            names = name_coordinates(group, name, array, positions)
            table = convergence_table(draws, num_threads=self._num_threads)
            count += len(positions)
            if (monitored["variable"] == name).any():
                held.append((names, table))
            else:
                self._write(names, table)
        if held and not repeats(pd.concat([_rows(*each) for each in held]), monitored):
            for each in held:
                self._write(*each)
        return count

    def _blocks(
        self, array: zarr.Array, most: int | None
    ) -> Iterator[tuple[Int[np.ndarray, " n"], Shaped[np.ndarray, "chain draw n"]]]:
        total = event_size(array)
        positions = choose_coordinates(total, total if most is None else most)
        for part, draws in coordinate_blocks(array, positions, READ_BYTES, self._scratch):
            yield positions[part], draws

    def _write(self, names: Names, table: Mapping[str, Float[np.ndarray, " n"]]) -> None:
        columns = [["NaN" if math.isnan(v) else v for v in column.tolist()] for column in table.values()]
        variable = [names.variable] * len(names.indices)
        self._rows.writerows(zip(variable, names.indices, names.labels, *columns, strict=True))
        self.num_rows += len(variable)


def _rows(names: Names, table: Mapping[str, Float[np.ndarray, " n"]]) -> pd.DataFrame:
    return pd.DataFrame({"variable": names.variable, "index": names.indices, "label": names.labels, **table})
