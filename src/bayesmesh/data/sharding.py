"""Write a dataset as row shards: check counts, split off the held-out part, compute the fingerprint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

import numpy as np

from bayesmesh.config.blocks import DataSettings
from bayesmesh.data.base import Dataset
from bayesmesh.data.shards import fingerprint_data
from bayesmesh.data.split import hold_out_interactions, hold_out_rows
from bayesmesh.errors import DataError
from bayesmesh.files import JSON, atomic_folder
from bayesmesh.store.arrays import CHUNK_BYTES, create_array, open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import ROW, DataLayout
from bayesmesh.store.sealed import write_sealed

SHARD_ROWS = 8192
"""Rows per shard, which is one file; a process reads a range of rows from a few files."""

CHUNK_ROWS = 1024
SHARD_BYTES = 2**28


class ShardManifest(TypedDict):
    """The manifest of a dataset's shards; `activity` describes a watch matrix only."""

    counts: dict[str, int]
    fingerprint: str
    kind: str
    split: dict[str, float]
    activity: NotRequired[dict[str, object]]


def shard(dataset: Dataset, data_settings: DataSettings, layout: DataLayout) -> ShardManifest:
    """Check, split and write a dataset to ``layout.shards``, hash it, then write the manifest ``layout.sharded``.

    The group is written atomically and replaces that of an earlier run.

    Args:
        dataset: decoded arrays.
        data_settings: held-out fraction and seed of the split.
        layout: paths of this dataset and split.

    Returns:
        The manifest.

    Raises:
        DataError: counts differ from those declared, fields have unequal lengths, or a value is not finite.
    """
    counts = check_counts(dataset)
    arrays, num_held_out = _split(dataset, data_settings)
    training = {name.removeprefix("rows/"): values for name, values in arrays.items() if name.startswith("rows/")}
    described: dict[str, JSON] = {
        "kind": dataset.kind,
        "constants": {name: _plain(value) for name, value in dataset.constants.items()},
        "columns": {name: list(values) for name, values in dataset.columns.items()},
    }
    fingerprint = fingerprint_data(arrays, described)
    num_rows = len(next(iter(training.values())))
    attributes: dict[str, JSON] = {
        **described,
        "num_rows": num_rows,
        "fields": {n: {"shape": list(v.shape[1:]), "dtype": v.dtype.name} for n, v in sorted(training.items())},
        "fingerprint": fingerprint,
    }
    layout.sharded.unlink(missing_ok=True)
    _write(layout.shards, arrays, attributes)
    manifest: ShardManifest = {
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
        DataError: a count differs; the message has both.
    """
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
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            row = int(np.argwhere(~np.isfinite(values))[0][0])
            raise DataError(f"{part}/{name}: row {row}: a value is not finite")
    lengths = {name: len(values) for name, values in fields.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"fields of {part} have unequal lengths: {lengths}")
    return next(iter(lengths.values()), 0)


def _split(dataset: Dataset, settings: DataSettings) -> tuple[dict[str, np.ndarray], int]:
    """Return all arrays by their name in the group, and the number of held-out rows or cells."""
    fraction, seed = settings.held_out_fraction, settings.split_seed
    arrays = {f"test_rows/{name}": values for name, values in dataset.test_rows.items()}
    arrays |= {f"truth/{name}": np.asarray(values) for name, values in dataset.truth.items()}
    num_rows = len(next(iter(dataset.rows.values())))
    if fraction <= 0:
        return arrays | {f"rows/{name}": values for name, values in dataset.rows.items()}, 0
    if dataset.kind == "interactions":
        training, hidden = hold_out_interactions(dataset.rows["watched"], fraction, seed)
        rows = {**dataset.rows, "watched": training}
        arrays |= {f"rows/{name}": values for name, values in rows.items()}
        arrays |= {"held_out/indptr": hidden.indptr, "held_out/indices": hidden.indices}
        return arrays, len(hidden.indices)
    kept, hidden_rows = hold_out_rows(num_rows, fraction, seed)
    arrays |= {f"rows/{name}": values[kept] for name, values in dataset.rows.items()}
    arrays |= {f"held_out_rows/{name}": values[hidden_rows] for name, values in dataset.rows.items()}
    return arrays, len(hidden_rows)


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
            if part.endswith("rows"):
                chunk, shard_rows = row_chunks(len(values), values[:1].nbytes)
                inner = values.shape[1:]
                array = create_array(
                    group, name, values.shape, values.dtype, _dims(field, values, ROW),
                    chunks=(chunk, *inner), shards=(shard_rows, *inner),
                )  # fmt: skip
                array[...] = values
            else:
                write_array(group, name, values, _dims(field, values, f"{field}_dim_0"))


def _dims(field: str, values: np.ndarray, first: str) -> list[str]:
    return [first, *(f"{field}_dim_{axis}" for axis in range(1, values.ndim))][: values.ndim]


def _activity(watched: np.ndarray) -> dict[str, object]:
    """Count films per user in the whole matrix, before anything is held out."""
    films = watched.sum(axis=1, dtype=np.int64)
    most, least = int(films.argmax()), int(films.argmin())
    return {
        "interactions": int(films.sum()),
        "most_active": {"user": most, "films": int(films[most])},
        "least_active": {
            "user": least,
            "films": int(films[least]),
            "users_with_as_many": int((films == films[least]).sum()),
        },
    }


def _plain(value: float | int) -> float | int:
    return value.item() if isinstance(value, np.generic) else value
