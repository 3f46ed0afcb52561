"""Write ``summary.csv``: a row of convergence statistics for each coordinate, block by block in bounded memory."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
import pandas as pd
import zarr
from jaxtyping import Float, Int, Shaped

from bayesmesh.diagnostics.convergence import (
    OF_CHAINS,
    STATISTICS,
    chance_of_r_hat,
    coordinate_parts,
    join_tables,
    keep_freed_memory,
    part_table,
    within,
)
from bayesmesh.diagnostics.efficiency import efficiency_columns, efficiency_table
from bayesmesh.diagnostics.gates.chains import Movement, NonFinite
from bayesmesh.diagnostics.gates.messages import place_of
from bayesmesh.diagnostics.gates.modes import ModeStays
from bayesmesh.diagnostics.gates.populations import as_populations, compare_populations
from bayesmesh.diagnostics.gates.precision import EdgeDraws
from bayesmesh.diagnostics.gates.tails import HeavyTails
from bayesmesh.files import atomic_path
from bayesmesh.store.layout import FIXED
from bayesmesh.store.posterior.axes import read_labels
from bayesmesh.store.posterior.coordinates import (
    choose_coordinates,
    coordinate_blocks,
    coordinate_indices,
    coordinate_labels,
    event_size,
)


def repeats(latent: pd.DataFrame, summaries: pd.DataFrame) -> bool:
    """Return whether a summary of the same name repeats all draws of a latent, judged by their statistics.

    A model may return a latent among its summaries, as `glm` does with the parameters of its family, or another quantity
    under the same name, such as biases less their mean; the latter has other statistics.

    Args:
        latent: rows of summary.csv of one variable.
        summaries: rows of all summaries.
    """
    # Means and deviations tell draws apart; statistics of chains are left out of fixed entries of a summary.
    of_both = ["mean", "sd", "index"]
    other = summaries.loc[summaries["variable"] == latent["variable"].iloc[0], of_both].set_index("index")
    own = latent[of_both].set_index("index")
    # Only some coordinates of a large latent may be listed. NaN equals NaN here.
    return bool(own.index.isin(other.index).all()) and own.equals(other.loc[own.index])


READ_BYTES = 64 * 2**20
"""Limit on the draws in memory, and on the data read at a time, in bytes."""

SUMMARY_COLUMNS = ("variable", "index", "label", *STATISTICS)
"""Columns of summary.csv; a label is the index written with names of levels and columns, for axes that have them."""


class Names(NamedTuple):
    """Names of some coordinates of a variable: indices such as ``3,7``, and labels such as ``elm,intercept`` or empty."""

    variable: str
    indices: list[str]
    labels: list[str]

    def places(self) -> list[str]:
        """Return full names, such as ``b_species[elm]``."""
        pairs = zip(self.indices, self.labels, strict=True)
        return [place_of(self.variable, index, label) for index, label in pairs]


def name_coordinates(group: zarr.Group, name: str, array: zarr.Array, positions: Int[np.ndarray, " n"]) -> Names:
    """Return the names of coordinates of an array of the group at some flat positions."""
    return _names(name, array.shape[2:], read_labels(group, array), positions)


def _names(
    name: str, shape: tuple[int, ...], labels: Sequence[Sequence[str] | None], positions: Int[np.ndarray, " n"]
) -> Names:
    return Names(name, coordinate_indices(positions, shape), coordinate_labels(positions, shape, labels))


class Part(NamedTuple):
    """Statistics of some of the coordinates of a block.

    Attributes:
        names, table: of these coordinates.
        rows: their rows of summary.csv.
        further_rows: their rows of efficiency.csv; empty if it is not written.
    """

    names: Names
    table: dict[str, Float[np.ndarray, " n"]]
    rows: str
    further_rows: str


class Block(NamedTuple):
    """Coordinates of a variable that are in memory together.

    Attributes:
        draws: (chain, draw, coordinate).
        parts: their statistics, in order.
    """

    draws: Shaped[np.ndarray, "chain draw n"]
    parts: list[Part]


class Efficiency(NamedTuple):
    """Additional statistics to write for every coordinate.

    Attributes:
        path: of their file.
        superchains: superchain number of each chain; None without superchains.
    """

    path: Path
    superchains: Int[np.ndarray, " number"] | None


@contextlib.contextmanager
def writing_summary(
    path: Path, num_threads: int, efficiency: Efficiency | None = None, num_populations: int = 0
) -> Iterator[SummaryFile]:
    """Yield a new summary file, which replaces the existing one on success.

    Args:
        path: the file; draws that must be reordered go through a temporary file in its folder.
        num_threads: threads for the statistics.
        efficiency: additional statistics, written to a file of their own with the same coordinates; None for none.
        num_populations: number of populations that the chains are; 0 if chains are independent.
    """
    with contextlib.ExitStack() as at_end:

        def opened(path: Path) -> TextIO:
            partial = at_end.enter_context(atomic_path(path))
            return at_end.enter_context(partial.open("w", encoding="utf-8", newline=""))

        file, further = opened(path), None if efficiency is None else opened(efficiency.path)
        pool = ThreadPoolExecutor(num_threads)
        # After an error, waiting tasks are cancelled.
        at_end.callback(pool.shutdown, cancel_futures=True)
        yield SummaryFile((file, further), path.parent, pool, efficiency, num_populations)


class SummaryFile:
    """Compute the statistics of variables and write their rows; see `writing_summary`.

    Attributes:
        num_rows: rows written so far.
    """

    def __init__(
        self, files: tuple[TextIO, TextIO | None], scratch: Path, pool: ThreadPoolExecutor,
        efficiency: Efficiency | None, num_populations: int,
    ) -> None:  # fmt: skip
        (self._file, self._further), self._scratch, self.num_rows = files, scratch, 0
        self._pool, self._efficiency = pool, efficiency
        self._num_populations, self._limit = num_populations, math.inf
        csv.writer(self._file, lineterminator="\n").writerow(SUMMARY_COLUMNS)
        if self._further is not None and efficiency is not None:
            columns = efficiency_columns(has_superchains=efficiency.superchains is not None)
            csv.writer(self._further, lineterminator="\n").writerow((*SUMMARY_COLUMNS[:3], *columns))

    def add_monitored(
        self,
        group: zarr.Group,
        arrays: Mapping[str, zarr.Array],
        limit: float,
        movement: Movement,
        non_finite: NonFinite,
        stays: ModeStays,
        tails: HeavyTails,
        edges: EdgeDraws,
    ) -> pd.DataFrame:
        """Write all coordinates of the arrays that the gates assess.

        Args:
            group: of the arrays.
            arrays: name -> dimensions (chain, draw, ...).
            limit: R-hat above which its probability under agreement is computed, see `chance_of_r_hat`.
            movement, non_finite, stays, tails, edges: collectors to which the draws are added.

        Returns:
            The columns of the file; `chance`, which is 1 where R-hat is within the limit; and `is_fixed`, which marks entries
            that no latent changes. These have no R-hat and no effective sample sizes.
        """
        found = [pd.DataFrame({name: [] for name in (*SUMMARY_COLUMNS, "chance", "is_fixed")})]
        self._limit, num_populations = limit, self._num_populations
        for name, array in arrays.items():
            is_fixed = iter(np.isin(np.arange(event_size(array)), _fixed(array)))
            for block in self._blocks(group, name, array, None, movement):
                places = [place for part in block.parts for place in part.names.places()]
                non_finite.add(block.draws, places)
                self._write(block.parts)
                rows = _rows(block.parts)
                fixed = np.fromiter(itertools.islice(is_fixed, len(rows)), bool)
                sd = np.where(fixed, np.nan, rows["sd"].to_numpy(np.float64))
                tails.add(block.draws, places, rows["mean"].to_numpy(np.float64), sd)
                edges.add(name, block.draws, places, sd)
                chance = np.ones(len(rows))
                exceeds = ~within(rows["r_hat"].to_numpy(), limit, is_upper=True) & ~fixed
                apart = block.draws[:, :, exceeds]
                if num_populations:
                    chance[exceeds] = chance_of_r_hat(as_populations(apart, num_populations))
                else:
                    chance[exceeds] = chance_of_r_hat(apart)
                    stays.add(name, block.draws, places, chance)
                found.append(rows.assign(chance=chance, is_fixed=fixed))
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
        """Write at most `most` coordinates of a latent, or none if a summary repeats it.

        Args:
            group: of the array.
            name: of the latent.
            array: dimensions (chain, draw, ...).
            most: largest number of coordinates, evenly spaced; None for all.
            monitored: rows of the summaries, as `add_monitored` returns them.
            movement: collector to which the draws are added.

        Returns:
            The number of coordinates read.
        """
        count, held = 0, list[Part]()
        for block in self._blocks(group, name, array, most, movement):
            count += block.draws.shape[2]
            if (monitored["variable"] == name).any():
                held += block.parts
            else:
                self._write(block.parts)
        if held and not repeats(_rows(held), monitored):
            self._write(held)
        return count

    def _blocks(
        self, group: zarr.Group, name: str, array: zarr.Array, most: int | None, movement: Movement
    ) -> Iterator[Block]:
        """Yield blocks of coordinates; each is read while the threads process the previous one."""
        total, labels, fixed = event_size(array), read_labels(group, array), _fixed(array)
        positions = choose_coordinates(total, total if most is None else most)

        def of_part(draws: Shaped[np.ndarray, "chain draw n"], chosen: Int[np.ndarray, " n"]) -> Part:
            names, table = _names(name, array.shape[2:], labels, chosen), part_table(draws)
            if self._num_populations:
                compare_populations(table, draws, self._num_populations, self._limit)
            for each in OF_CHAINS:
                table[each][np.isin(chosen, fixed)] = np.nan
            further = ""
            if self._efficiency is not None:
                further = _text(names, efficiency_table(draws, self._efficiency.superchains))
            return Part(names, table, _text(names, table), further)

        keep_freed_memory()
        waiting: tuple[np.ndarray, list[Future[Part]]] | None = None
        for part, draws in coordinate_blocks(array, positions, READ_BYTES, self._scratch):
            parts = coordinate_parts(draws.shape)
            computed = [self._pool.submit(of_part, draws[:, :, own], positions[part][own]) for own in parts]
            movement.add(draws)
            if waiting is not None:
                yield Block(waiting[0], [each.result() for each in waiting[1]])
            waiting = draws, computed
        if waiting is not None:
            yield Block(waiting[0], [each.result() for each in waiting[1]])

    def _write(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._file.write(part.rows)
            if self._further is not None:
                self._further.write(part.further_rows)
            self.num_rows += len(part.names.indices)


def _fixed(array: zarr.Array) -> Int[np.ndarray, " n"]:
    """Return the flat positions of the entries of a summary that no latent changes."""
    return np.asarray(array.attrs.get(FIXED, []), np.int64)


def _text(names: Names, table: Mapping[str, Float[np.ndarray, " n"]]) -> str:
    """Return the CSV rows of some coordinates."""
    columns = [["NaN" if math.isnan(value) else value for value in column.tolist()] for column in table.values()]
    text, named = io.StringIO(), ([names.variable] * len(names.indices), names.indices, names.labels)
    csv.writer(text, lineterminator="\n").writerows(zip(*named, *columns, strict=True))
    return text.getvalue()


def _rows(parts: Sequence[Part]) -> pd.DataFrame:
    names = [part.names for part in parts]
    return pd.DataFrame(
        {
            "variable": [each.variable for each in names for _ in each.indices],
            "index": [index for each in names for index in each.indices],
            "label": [label for each in names for label in each.labels],
            **join_tables([part.table for part in parts]),
        }
    )
