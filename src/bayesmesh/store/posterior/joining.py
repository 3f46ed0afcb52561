"""Join chain groups into one posterior store without copying draws.

A committed shard is never changed in place, so an array of the posterior consists of hard links to the shards of all
groups, side by side along the chain axis. If several processes wrote a group, their blocks of rows lie side by side along
the row axis. Shards are copied only if the file system does not support links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.files import JSON
from bayesmesh.store.arrays import chunk_file, create_array, open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.store.posterior.axes import GroupCoordinates, NamedAxes, NamedAxis

_REMEDY = "sample this group again"


def join_groups(
    root: zarr.Group,
    root_path: Path,
    groups: Sequence[Path],
    num_draws: dict[str, int],
    axes: NamedAxes | None = None,
    lead: Sequence[NamedAxis] = (),
    attributes: Mapping[str, Mapping[str, JSON]] | None = None,
    names: Mapping[str, str] | None = None,
) -> dict[str, GroupCoordinates]:
    """Link the arrays of all chain groups into `root`, and return the dimensions of each Zarr group, to be written last.

    Args:
        root: the posterior's root group, open for writing, at `root_path`.
        root_path: its folder.
        groups: ``draws.zarr`` of every chain group, in order.
        num_draws: Zarr group -> draws to keep, such as ``{"posterior": 500}``.
        axes: names of axes and of their entries.
        lead: axes that follow chain and draw in every array.
        attributes: statistic -> attributes of its arrays.
        names: statistic -> its name in the posterior, if another.

    Raises:
        StoreError: the groups differ in arrays or layout, or have too few draws.
    """
    sources, coordinates = [open_group(path) for path in groups], dict[str, GroupCoordinates]()
    for group_name, draws in num_draws.items():
        reference = sources[0].get(group_name)
        if not isinstance(reference, zarr.Group):
            continue
        target, num_chains = root.require_group(group_name), 0
        is_posterior = group_name == "posterior"
        stored = {name: name if is_posterior else (names or {}).get(name, name) for name in reference.array_keys()}
        named = GroupCoordinates((axes or {}) if is_posterior else {}, stored.values(), lead)
        for name, first in sorted(reference.arrays()):
            whole = f"{group_name}/{name}"
            others = [_array(source, path, whole) for source, path in zip(sources[1:], groups[1:], strict=True)]
            arrays = [first, *others]
            for array, path in zip(arrays, groups, strict=True):
                if array is not first and _layout(array) != _layout(first):
                    message = f"{path}: array {whole} has another layout than in {groups[0]}"
                    raise StoreError(message, "sample all groups again")
                if array.shape[1] < draws:
                    raise StoreError(f"{path}: array {whole} holds {array.shape[1]} draws, not {draws}", _REMEDY)
            num_chains = sum(a.shape[0] for a in arrays)
            shape, lengths = (num_chains, draws, *first.shape[2:]), {"chunks": first.chunks, "shards": first.shards}
            dims = (CHAIN, DRAW, *named.dims(stored[name], first.shape[2:]))
            about = {} if is_posterior else (attributes or {}).get(name, {})
            create_array(target, stored[name], shape, first.dtype, dims, **lengths, attributes=about)
            for number, path in enumerate(groups):
                _link_shards(path / whole, root_path / group_name / stored[name], first, draws, axis=0, block=number)
        write_array(target, CHAIN, np.arange(num_chains), [CHAIN])
        write_array(target, DRAW, np.arange(draws), [DRAW])
        coordinates[group_name] = named
    return coordinates


def join_rows(
    root: zarr.Group, root_path: Path, processes: Sequence[Path], axes: Mapping[str, int], num_rows: int
) -> None:
    """Link the blocks of rows of further processes beside those of the first, which `join_groups` has linked.

    Args:
        root: the posterior's root group, open for writing, at `root_path`; of one chain group.
        root_path: its folder.
        processes: ``draws.zarr`` of every process, in order.
        axes: array, such as ``posterior/users`` -> axis of its rows, not counting chain and draw.
        num_rows: total number of rows; the blocks have equal length, with padding after the last row.

    Raises:
        StoreError: the processes differ in arrays, layout or number of draws.
    """
    for name, axis in axes.items():
        joined = _array(root, root_path, name)
        draws, block_rows = joined.shape[1], joined.shape[axis]
        # A block after the last row contains only padding.
        for block, path in list(enumerate(processes))[1 : -(-num_rows // block_rows)]:
            array = _array(open_group(path), path, name)
            if _layout(array) != _layout(joined) or array.shape[1] < draws:
                raise StoreError(f"{path}: array {name} does not fit that of {processes[0]}", _REMEDY)
            _link_shards(path / name, root_path / name, joined, draws, axis=axis, block=block)
        joined.resize([num_rows if i == axis else n for i, n in enumerate(joined.shape)])


def _array(source: zarr.Group, path: Path, name: str) -> zarr.Array:
    found = source.get(name)
    if not isinstance(found, zarr.Array):
        raise StoreError(f"{path}: no array '{name}'", _REMEDY)
    return found


def _layout(array: zarr.Array) -> dict[str, object]:
    """Return the metadata that must agree for shards to lie side by side: all except shape, attributes and names."""
    metadata = array.metadata.to_dict()
    return {key: value for key, value in metadata.items() if key not in ("shape", "attributes", "dimension_names")}


def _link_shards(source: Path, target: Path, array: zarr.Array, draws: int, *, axis: int, block: int) -> None:
    """Link the shards of one writer's array, up to a number of draws, as a block along an axis of the joined array."""
    # Draws are always stored in shards.
    for shard in range(-(-draws // (array.shards or array.chunks)[1])):
        index = [0, shard, *[0] * (array.ndim - 2)]
        file = chunk_file(source, index)
        index[axis] = block
        _link(file, chunk_file(target, index))


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        # Skipping it would leave a hole in the posterior, which other readers of Zarr fill with zeros.
        raise StoreError(f"{source}: is missing", _REMEDY) from error
    except OSError:
        shutil.copyfile(source, target)
