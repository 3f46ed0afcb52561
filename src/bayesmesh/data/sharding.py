"""Write a dataset as row shards: check counts, split off the held-out part, compute the fingerprint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.shards import fingerprint_data
from bayesmesh.data.split import hold_out_interactions, hold_out_rows
from bayesmesh.errors import DataError
from bayesmesh.files import JSON, atomic_folder
from bayesmesh.store.arrays import CHUNK_BYTES, create_array, open_group
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import ROW, DataLayout
from bayesmesh.store.sealed import write_sealed

SHARD_ROWS = 8192
"""Rows per shard, which is one file; a process reads a range of rows from a few files."""

CHUNK_ROWS = 1024
SHARD_BYTES = 2**28


def shard(dataset: Dataset, data_settings: DataSettings, layout: DataLayout) -> dict[str, Any]:
    """Check, split and write a dataset to ``layout.shards``, hash it, then write the manifest ``layout.sharded``.

    The group is written atomically and replaces that of an earlier run.

    Args:
        dataset: decoded arrays.
        data_settings: held-out fraction and seed of the split.
        layout: paths of this dataset and split.

    Returns:
        The manifest: counts, fingerprint, kind and split; of a watch matrix also how active its users are.

    Raises:
        DataError: counts differ from those declared, fields have unequal lengths, or a value is not finite.
    """
    counts = check_counts(dataset)
    parts, num_held_out = _split(dataset, data_settings)
    arrays = {f"{part}/{name}": np.asarray(values) for part, held in parts.items() for name, values in held.items()}
    described: dict[str, JSON] = {
        "kind": dataset.kind,
        "constants": {name: np.asarray(value).item() for name, value in dataset.constants.items()},
        "columns": {name: list(values) for name, values in dataset.columns.items()},
    }
    fingerprint, num_rows = fingerprint_data(arrays, described), len(next(iter(parts["rows"].values())))
    fields: JSON = {n: {"shape": list(v.shape[1:]), "dtype": v.dtype.name} for n, v in sorted(parts["rows"].items())}
    _write(layout.shards, arrays, {**described, "num_rows": num_rows, "fields": fields, "fingerprint": fingerprint})
    manifest: dict[str, Any] = {
        "counts": {**counts, "training_rows": num_rows, "held_out": num_held_out},
        "fingerprint": fingerprint,
        "kind": dataset.kind,
        "split": {"seed": data_settings.split_seed, "held_out_fraction": data_settings.held_out_fraction},
    }
    if dataset.kind == "interactions":
        manifest["activity"] = _activity(dataset.rows["watched"])
    write_hashes(layout.shards, {})
    write_sealed(layout.sharded, manifest)
    return manifest


def check_counts(dataset: Dataset) -> dict[str, int]:
    """Count rows, test rows, columns and interactions, and compare them with the declared counts.

    Raises:
        DataError: a field is not an array of numbers, or holds nothing; or a count differs: the message has both.
    """
    if not isinstance(dataset, Dataset):
        raise DataError(f"`read` returns {type(dataset).__name__} instead of a Dataset")
    for name, value in dataset.constants.items():
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise DataError(f"constant '{name}' is not a finite number but {value!r}")
    counts = {"rows": _length("rows", dataset.rows), "test_rows": _length("test_rows", dataset.test_rows)}
    if counts["rows"] == 0:
        raise DataError("the dataset has no rows")
    if dataset.test_rows and set(dataset.test_rows) != set(dataset.rows):
        raise DataError(f"test rows have the fields {sorted(dataset.test_rows)}, rows {sorted(dataset.rows)}")
    if dataset.kind == "interactions":
        watched = dataset.rows.get("watched")
        if watched is None or watched.ndim != 2 or watched.dtype != np.uint8 or watched.max(initial=0) > 1:
            raise DataError("a dataset of kind 'interactions' needs rows['watched'], (users, films) uint8 of 0 and 1")
        counts |= {"columns": watched.shape[1], "interactions": int(watched.sum(dtype=np.int64))}
    for name, expected in dataset.declared_counts.items():
        if name not in counts:
            raise DataError(f"declared count '{name}' is not one of {sorted(counts)}")
        if counts[name] != expected:
            raise DataError(
                f"{name}: expected {expected}, found {counts[name]}",
                "the files do not belong to this source; fetch them again",
            )
    return counts


def _length(part: str, fields: Mapping[str, np.ndarray]) -> int:
    for name, values in fields.items():
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf" or not values.ndim:
            about = (
                f"{values.dtype} of shape {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
            )
            raise DataError(f"{part}/{name}: is not an array of numbers with one entry per row, but {about}")
        if 0 in values.shape[1:]:
            raise DataError(f"{part}/{name}: has shape {values.shape}: its rows hold nothing")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise DataError(f"{part}/{name}: row {row}: a value is not finite")
    lengths = {name: len(values) for name, values in fields.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"fields of {part} have unequal lengths: {lengths}")
    return next(iter(lengths.values()), 0)


def _split(dataset: Dataset, settings: DataSettings) -> tuple[dict[str, Mapping[str, np.ndarray]], int]:
    """Return the arrays by part of the group and name, and the number of held-out rows or cells."""
    rows, fraction, seed = dataset.rows, settings.held_out_fraction, settings.split_seed
    parts = {"rows": rows, "test_rows": dataset.test_rows, "truth": dataset.truth}
    if fraction <= 0:
        return parts, 0
    if dataset.kind == "interactions":
        training, films = hold_out_interactions(rows["watched"], fraction, seed)
        return {**parts, "rows": {**rows, "watched": training}, "held_out": films._asdict()}, len(films.indices)
    kept, hidden = hold_out_rows(len(next(iter(rows.values()))), fraction, seed)
    for part, chosen in (("rows", kept), ("held_out_rows", hidden)):
        parts[part] = {name: values[chosen] for name, values in rows.items()}
    return parts, len(hidden)


def row_chunks(num_rows: int, row_bytes: int) -> tuple[int, int]:
    """Return rows of a chunk and of a shard; the second is a multiple of the first.

    >>> row_chunks(60000, 784), row_chunks(6040, 3706), row_chunks(5, 8), row_chunks(100, 2**23)
    ((1024, 8192), (1024, 6144), (1024, 1024), (1, 32))
    """
    # Powers of two, so that chunks divide shards whatever the size of a row.
    fitting = max(1, CHUNK_BYTES // max(1, row_bytes))
    chunk = min(CHUNK_ROWS, 2 ** int(math.log2(fitting)))
    most = min(SHARD_ROWS, max(1, SHARD_BYTES // max(1, chunk * row_bytes)) * chunk)
    return chunk, min(most, math.ceil(max(1, num_rows) / chunk) * chunk)


def _write(path: Path, arrays: Mapping[str, np.ndarray], attributes: Mapping[str, JSON]) -> None:
    with atomic_folder(path) as partial:
        group = open_group(partial, "w")
        group.attrs.update(attributes)
        for name, values in sorted(arrays.items()):
            part, _, field = name.partition("/")
            first, chunks, shards = f"{field}_dim_0", None, None
            if part.endswith("rows"):
                sizes = row_chunks(len(values), values[:1].nbytes)
                first, (chunks, shards) = ROW, ((size, *values.shape[1:]) for size in sizes)
            dims = [first, *(f"{field}_dim_{axis}" for axis in range(1, values.ndim))][: values.ndim]
            create_array(group, name, values.shape, values.dtype, dims, chunks=chunks, shards=shards)[...] = values


def _activity(watched: np.ndarray) -> dict[str, object]:
    """Count films per user in the whole matrix, before anything is held out."""
    films = watched.sum(axis=1, dtype=np.int64)
    most, least = int(films.argmax()), int(films.argmin())
    as_few = int((films == films[least]).sum())
    return {
        "interactions": int(films.sum()),
        "most_active": {"user": most, "films": int(films[most])},
        "least_active": {"user": least, "films": int(films[least]), "users_with_as_many": as_few},
    }
