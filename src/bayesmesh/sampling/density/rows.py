"""The layout of rows, and of the entries of local latents to which they belong, over devices and tiles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

ReadRows = Callable[[int, int], Mapping[str, np.ndarray]]
"""Function from a range of rows to field -> (row, ...)."""


class Slots(NamedTuple):
    """Contents of the slots for rows on some devices, each (device, tile, row).

    Attributes:
        row: int64, index among the rows of these devices; padding repeats the row before it.
        is_row: bool, False for padding.
        entry_of_row: int32, the entry of the tile to which the row belongs.
    """

    row: Int[np.ndarray, "device tile row"]
    is_row: Bool[np.ndarray, "device tile row"]
    entry_of_row: Int[np.ndarray, "device tile row"]


@dataclasses.dataclass(frozen=True)
class RowLayout:
    """Rows as (device, tile, row of tile) and entries as (device, tile, entry of tile), padded after the last.

    The first axis is sharded and the second scanned: a scan over a sharded axis would make XLA gather it. All rows of
    an entry lie in one tile, so that no device needs an entry of another.

    Attributes:
        num_rows: number of rows, without padding.
        num_devices: devices along the data axis.
        num_tiles: tiles of each device.
        tile_rows: rows of a tile.
        num_entries: entries of local latents: as many as rows, or fewer where several rows share one.
        tile_entries: entries of a tile.
        first_rows: first row of each entry, followed by the number of rows; empty if each row is an entry.
    """

    num_rows: int
    num_devices: int
    num_tiles: int
    tile_rows: int
    num_entries: int
    tile_entries: int
    first_rows: tuple[int, ...] = dataclasses.field(default=(), repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(device, tile, row of tile)."""
        return (self.num_devices, self.num_tiles, self.tile_rows)

    @property
    def padded_entries(self) -> int:
        """Number of entries including padding."""
        return self.num_devices * self.num_tiles * self.tile_entries

    @property
    def is_grouped(self) -> bool:
        """Whether several rows may share an entry."""
        return bool(self.first_rows)

    @property
    def is_padded(self) -> bool:
        """Whether any slot for a row holds padding."""
        return self.num_devices * self.num_tiles * self.tile_rows > self.num_rows

    def first_row(self, entry: int) -> int:
        """Return the first row of an entry; the number of rows for an entry after the last."""
        entry = min(entry, self.num_entries)
        return self.first_rows[entry] if self.is_grouped else entry

    def rows_of(self, devices: range) -> tuple[int, int]:
        """Return the first row that lies on some devices, and the first row after them."""
        per_device = self.num_tiles * self.tile_entries
        return self.first_row(devices.start * per_device), self.first_row(devices.stop * per_device)

    def slots(self, devices: range) -> Slots:
        """Return the contents of the slots for rows on some devices."""
        tiles = range(devices.start * self.num_tiles, devices.stop * self.num_tiles)
        starts = np.array([self.first_row(t * self.tile_entries) for t in tiles])[:, None]
        stops = np.array([self.first_row((t + 1) * self.tile_entries) for t in tiles])[:, None]
        begin, end = self.rows_of(devices)
        row = starts + np.arange(self.tile_rows)[None]
        is_row = row < stops
        # A tile without any row repeats the last one of all.
        row = np.clip(np.where(is_row, row, stops - 1), begin, max(begin, end - 1))
        entry = row
        if self.is_grouped:
            entry = np.searchsorted(self.first_rows, row, side="right") - 1
        first_entries = np.array([t * self.tile_entries for t in tiles])[:, None]
        within = np.clip(entry - first_entries, 0, self.tile_entries - 1)
        shape = (len(devices), self.num_tiles, self.tile_rows)
        return Slots((row - begin).reshape(shape), is_row.reshape(shape), within.astype(np.int32).reshape(shape))


def lay_out_rows(num_rows: int, num_devices: int, row_tile: int, entry_counts: Sequence[int] = ()) -> RowLayout:
    """Split rows over devices and tiles of at most `row_tile` rows, with as little padding as that allows.

    Args:
        num_rows: number of rows.
        num_devices: devices along the data axis.
        row_tile: most rows of a tile; the rows of the largest entry if it has more.
        entry_counts: rows of each entry, in order, if several rows may share one; empty if each row is an entry.

    >>> lay_out_rows(6040, 7, 151)
    RowLayout(num_rows=6040, num_devices=7, num_tiles=6, tile_rows=144, num_entries=6040, tile_entries=144)
    >>> lay_out_rows(10, 2, 4, entry_counts=(1, 2, 3, 4))
    RowLayout(num_rows=10, num_devices=2, num_tiles=2, tile_rows=4, num_entries=4, tile_entries=1)
    """
    if not len(entry_counts):
        per_device = -(-num_rows // num_devices)
        num_tiles = -(-per_device // max(1, min(row_tile, per_device)))
        tile_rows = -(-per_device // num_tiles)
        return RowLayout(num_rows, num_devices, num_tiles, tile_rows, num_rows, tile_rows)
    first_rows = (0, *np.cumsum(entry_counts).tolist())
    num_entries = len(entry_counts)
    per_device = -(-num_entries // num_devices)
    most = max(row_tile, *entry_counts)
    num_tiles = min(per_device, max(1, -(-num_rows // (num_devices * most))))
    while True:
        tile_entries = -(-per_device // num_tiles)
        # Rounding up can leave the last tiles without an entry.
        used = -(-per_device // tile_entries)
        tile_rows = _most_rows(first_rows, num_devices * used, tile_entries)
        if tile_rows <= most:
            return RowLayout(num_rows, num_devices, used, tile_rows, num_entries, tile_entries, first_rows)
        num_tiles += 1


def _most_rows(first_rows: tuple[int, ...], num_tiles: int, tile_entries: int) -> int:
    """Return the rows of the fullest tile."""
    bounds = np.minimum(np.arange(num_tiles + 1) * tile_entries, len(first_rows) - 1)
    return int(np.diff(np.asarray(first_rows)[bounds]).max())
