"""Joins chain groups into one posterior store, without copying draws.

A committed shard is never changed in place, so the posterior's arrays are hard links to the shards of all groups,
side by side along the chain axis. Only where the file system cannot link are they copied.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import zarr

from bayesmesh.errors import StoreError
from bayesmesh.store.arrays import create_array, open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW

__all__ = ["join_groups"]


def join_groups(root: zarr.Group, root_path: Path, groups: Sequence[Path], num_draws: dict[str, int]) -> None:
    """Link the arrays of all chain groups into `root`.

    Args:
        root: the posterior's root group, open for writing, at `root_path`.
        root_path: its folder.
        groups: ``draws.zarr`` of every chain group, in order.
        num_draws: Zarr group -> draws to keep, such as ``{"posterior": 500}``.

    Raises:
        StoreError: the groups do not hold the same arrays.
    """
    sources = [open_group(path) for path in groups]
    for group_name, draws in num_draws.items():
        if group_name not in sources[0]:
            continue
        target = root.require_group(group_name)
        num_chains = 0
        for name, first in sorted(sources[0][group_name].arrays()):
            arrays = [
                _array(source, path, f"{group_name}/{name}") for source, path in zip(sources, groups, strict=True)
            ]
            num_chains = sum(a.shape[0] for a in arrays)
            if any(a.shards != first.shards or a.dtype != first.dtype for a in arrays):
                raise StoreError(
                    f"{groups[0].parent}: array {group_name}/{name} differs in layout between chain groups",
                    "sample all groups again",
                )
            shape = (num_chains, draws, *first.shape[2:])
            dims = first.metadata.dimension_names
            create_array(target, name, shape, first.dtype, dims, chunks=first.chunks, shards=first.shards)
            for number, path in enumerate(groups):
                _link_shards(
                    path / group_name / name / "c" / "0",
                    root_path / group_name / name / "c" / str(number),
                    -(-draws // first.shards[1]),
                )
        write_array(target, CHAIN, np.arange(num_chains), [CHAIN])
        write_array(target, DRAW, np.arange(draws), [DRAW])


def _array(source: zarr.Group, path: Path, name: str) -> zarr.Array:
    found = source.get(name)
    if not isinstance(found, zarr.Array):
        raise StoreError(f"{path}: no array '{name}'", "sample this group again")
    return found


def _link_shards(source: Path, target: Path, num_shards: int) -> None:
    """Link the first `num_shards` shards along the draw axis."""
    for shard in range(num_shards):
        start = source / str(shard)
        for file in [start] if start.is_file() else sorted(p for p in start.rglob("*") if p.is_file()):
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, place)
            except OSError:
                shutil.copyfile(file, place)
