"""Name the axes of the arrays of draws and their entries: dimensions and coordinates of the posterior.

Every dimension has a coordinate, made of names if there are any and of numbers otherwise, because readers such as ArviZ select
and label by coordinates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import zarr

from bayesmesh.store.arrays import dimension_names, read_part, write_array, write_texts
from bayesmesh.store.layout import CHAIN, DRAW, ROW

type NamedAxis = tuple[str, tuple[str, ...] | None]
"""Name of an axis, and the names of its entries, or None if they are numbered."""

type NamedAxes = Mapping[str, Sequence[NamedAxis | None]]
"""Array -> for each axis after chain and draw, its name and the names of its entries, or None for a numbered one."""


_OF_ARVIZ = frozenset(
    {
        "__obs__",
        "__sample__",
        "ci_bound",
        "column",
        "component_group",
        "ess_dim",
        "hdi_prob",
        "mcse_dim",
        "model",
        "plot_axis",
        "pred_id",
        "quantile",
        "sample",
        "summary",
    }
)
"""Dimensions that ArviZ adds to the data that it draws; it fails on data that have one."""


def is_free(name: str) -> bool:
    """Return whether a column can lend its name to an array with draws and rows."""
    return "/" not in name and name not in {"", ".", "..", CHAIN, DRAW, ROW}


class GroupCoordinates:
    """Dimensions of the arrays of one group.

    If an array of the group, an axis with different entries or ArviZ already has a name, other axes with that name get the
    default name instead, ``ARRAY_dim_0``.

    Args:
        axes: axes of arrays of any group.
        arrays: names of the arrays of draws of this group.
        lead: axes that come first in every array.

    >>> made = GroupCoordinates({"effects": [("site", ("a", "b")), None]}, ["effects", "sd"])
    >>> made.dims("effects", (2, 3)), made.dims("sd", (3,))
    (('site', 'effects_dim_1'), ('sd_dim_0',))
    """

    def __init__(self, axes: NamedAxes, arrays: Iterable[str], lead: Sequence[NamedAxis] = ()) -> None:
        self._axes, self._lead = axes, lead
        self._entries: dict[str, tuple[int, tuple[str, ...] | None]] = {}
        self._taken = {CHAIN, DRAW, ROW, *_OF_ARVIZ, *arrays}

    def dims(self, array: str, shape: Sequence[int]) -> tuple[str, ...]:
        """Return the names of the axes of an array after chain and draw."""
        found: list[str] = []
        given = (*self._lead, *self._axes.get(array, ()))
        for number, (axis, length) in enumerate(itertools.zip_longest(given, shape), -len(self._lead)):
            name, labels = axis or ("", None)
            entries = length, labels
            is_other = self._entries.setdefault(name, entries) != entries if name else True
            if is_other or name in self._taken or name in found:
                name = f"{array}_dim_{number}"
                self._entries[name] = entries
            found.append(name)
        return tuple(found)

    def write(self, group: zarr.Group) -> None:
        """Write a coordinate for each dimension of the group that has none yet."""
        lengths: dict[str, int] = {}
        for _, array in group.arrays():
            lengths |= dict(zip(dimension_names(array), array.shape, strict=False))
        for name, length in sorted(lengths.items()):
            if name in group:
                continue
            _, labels = self._entries.get(name, (length, None))
            if labels is not None:
                write_texts(group, name, labels, [name])
            else:
                write_array(group, name, np.arange(length), [name])


def read_labels(group: zarr.Group, array: zarr.Array) -> list[list[str] | None]:
    """Return, for each axis of an array of draws, the names of its entries, or None for a numbered one.

    Raises:
        StoreError: a chunk is missing or damaged.
    """
    found: list[list[str] | None] = []
    for name in dimension_names(array)[2:]:
        coordinate = group.get(name)
        is_named = isinstance(coordinate, zarr.Array) and coordinate.dtype.kind in "TO"
        found.append(list(map(str, read_part(coordinate))) if is_named else None)  # type: ignore[arg-type]
    return found
