"""Write a dataset as row shards: check counts, split off the held-out part, compute the fingerprint."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import zarr

from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.refit_settings import LeftOut
from bayesmesh.data.base import Dataset, RowArray, Variable
from bayesmesh.data.shards import HELD_OUT_GROUPS, LEFT_OUT, PARTS, UNSEEN, describe, fingerprint_data
from bayesmesh.data.split import (
    UnseenUsers,
    Use,
    hold_out_groups,
    hold_out_interactions,
    hold_out_last,
    hold_out_rows,
    hold_out_users,
    leave_out,
    read_column,
)
from bayesmesh.errors import DataError
from bayesmesh.files import JSON, atomic_folder
from bayesmesh.store.arrays import CHUNK_BYTES, RowWriter, create_array, open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import ROW, DataLayout
from bayesmesh.store.records.checked import write_checked

SHARD_ROWS = 8192
"""Rows per shard, which is one file; a process reads a range of rows from a few files."""

CHUNK_ROWS, CHUNK_OF_NARROW = 1024, 2**16
"""Rows of a chunk, or so many bytes where rows are narrow: reading a chunk costs a millisecond, whatever its size."""

SHARD_BYTES = 2**28

OF_USERS = "user_"
"""Prefix of the names of a watch matrix's true latents that have an entry per user."""

_USES: Mapping[str, Use] = {
    "held_out_groups": "groups", "held_out_last": "order", "group": "groups", "future": "order", "strata": "strata"
}  # fmt: skip
"""Key of a split -> use of its field's values."""

BLOCK_BYTES = 2**23
"""Size of the block of rows of one field that is read and written at a time, if a shard is smaller."""

READ = "correct the method `read` of the source, or the options in the key `data`"


def shard(dataset: Dataset, data_settings: DataSettings, layout: DataLayout) -> dict[str, Any]:
    """Check, split and write a dataset to ``layout.shards``, hash it, and write the manifest ``layout.sharded``.

    The group is written atomically and replaces that of an earlier run. Fields are read and written one after the other
    in blocks of rows, so that memory does not grow with their number.

    Args:
        dataset: decoded arrays.
        data_settings: held-out fraction, and how rows are chosen.
        layout: paths of this dataset and split.

    Returns:
        The manifest: counts, fingerprint, kind and split; for a watch matrix also how active its users are.

    Raises:
        DataError: counts differ from those declared, fields have unequal lengths, a value is not finite, or the rows
            cannot be split as configured.
    """
    counts = check_counts(dataset)
    unseen = None
    if data_settings.held_out_users:
        unseen, left = _take_users_out(dataset, data_settings)
    else:
        left = dataset
    described = describe(left)
    with atomic_folder(layout.shards) as partial:
        group = open_group(partial, "w")
        if unseen is None:
            num_rows, num_held_out, num_codes = _write(group, left, data_settings)
        else:
            num_rows, _, num_codes = _write(group, left, data_settings.model_copy(update={"held_out_fraction": 0.0}))
            num_held_out = _write_unseen(group, unseen, dataset.truth)
        arrays = {f"{part}/{name}": array for part in PARTS for name, array in _arrays_in(group, part).items()}
        fingerprint = fingerprint_data(arrays, described)
        fields: JSON = {
            name: {"shape": list(array.shape[1:]), "dtype": array.dtype.name, "num_codes": num_codes[name]}
            for name, array in sorted(_arrays_in(group, "rows").items())
        }
        group.attrs.update({**described, "num_rows": num_rows, "fields": fields, "fingerprint": fingerprint})
        if num_held_out and data_settings.held_out_groups is not None and data_settings.left_out is None:
            group.attrs.update({HELD_OUT_GROUPS: data_settings.held_out_groups})
    chosen_by = {
        key: value for key in ("held_out_groups", "held_out_last") if (value := getattr(data_settings, key)) is not None
    }
    if data_settings.left_out is not None:
        chosen_by["left_out"] = data_settings.left_out.words
    if unseen is not None:
        chosen_by["held_out_users"] = data_settings.held_out_users
        counts["unseen_users"] = len(unseen.rows)
    manifest: dict[str, Any] = {
        "counts": {**counts, "training_rows": num_rows, "held_out": num_held_out},
        "fingerprint": fingerprint,
        "kind": dataset.kind,
        "split": {
            "seed": data_settings.split_seed, "held_out_fraction": data_settings.held_out_fraction, **chosen_by
        },
    }  # fmt: skip
    if dataset.facts:
        manifest["source"] = dict(dataset.facts)
    if dataset.kind == "interactions":
        manifest["activity"] = _activity(dataset.rows["watched"][:])
    write_hashes(layout.shards, {})
    write_checked(layout.sharded, manifest)
    return manifest


def check_counts(dataset: Dataset) -> dict[str, int]:
    """Count rows, test rows, columns and interactions, and compare them with the declared counts.

    Raises:
        DataError: a field is not an array of numbers, or is empty; or a count differs, and the message gives both counts.
    """
    if not isinstance(dataset, Dataset):
        raise DataError(f"`read` returns {type(dataset).__name__} instead of a Dataset", READ)
    for name, value in dataset.constants.items():
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise DataError(f"constant '{name}' is not a finite number but {value!r}", READ)
    counts = {"rows": _length("rows", dataset.rows), "test_rows": _length("test_rows", dataset.test_rows)}
    if counts["rows"] == 0:
        raise DataError("the dataset has no rows", READ)
    if dataset.test_rows and set(dataset.test_rows) != set(dataset.rows):
        raise DataError(f"test rows have the fields {sorted(dataset.test_rows)}, rows {sorted(dataset.rows)}", READ)
    for name, labels in dataset.labels.items():
        if name not in dataset.rows or dataset.rows[name].shape[-1:] != (len(labels),):
            raise DataError(
                f"labels of '{name}': {len(labels)} names, which are not those of the last axis of a field", READ
            )
    if dataset.kind == "interactions":
        watched = dataset.rows["watched"][:] if "watched" in dataset.rows else None
        if watched is None or watched.ndim != 2 or watched.dtype != np.uint8 or watched.max(initial=0) > 1:
            raise DataError(
                "a dataset of kind 'interactions' needs rows['watched'], (users, films) uint8 of 0 and 1", READ
            )
        counts |= {"columns": watched.shape[1], "interactions": int(watched.sum(dtype=np.int64))}
    for name, expected in dataset.declared_counts.items():
        if name not in counts:
            raise DataError(f"declared count '{name}' is not one of {sorted(counts)}", READ)
        if counts[name] != expected:
            raise DataError(
                f"{name}: expected {expected}, found {counts[name]}",
                "the files do not belong to this source; fetch them again",
            )
    return counts


def _length(part: str, fields: Mapping[str, RowArray]) -> int:
    for name, values in fields.items():
        kind = getattr(getattr(values, "dtype", None), "kind", "")
        if not kind or kind not in "biuf" or not values.shape:
            about = f"{values.dtype} of shape {values.shape}" if kind else type(values).__name__
            raise DataError(f"{part}/{name}: not an array of numbers with one entry per row, but {about}", READ)
        if 0 in values.shape[1:]:
            raise DataError(f"{part}/{name}: has shape {values.shape}, with an empty axis", READ)
    lengths = {name: values.shape[0] for name, values in fields.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"fields of {part} have unequal lengths: {lengths}", READ)
    return next(iter(lengths.values()), 0)


def check_values(where: str, start: int, block: np.ndarray, about: Variable | None) -> None:
    """Check a block of rows of one field.

    Args:
        where: the field, for messages.
        start: number of the block's first row.
        block: (row, ...), its values.
        about: the column with the field's name, if any; a matrix with that name also holds other columns.

    Raises:
        DataError: a value is not finite, or is not the code of a level of a category, so that tables and pages could not
            name it.

    >>> check_values("rows/x", 8, np.array([0.5, np.inf]), None)
    Traceback (most recent call last):
    bayesmesh.errors.DataError: rows/x: row 10, counted from 1: a value is not finite
    """
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        row = start + int(np.argwhere(~np.isfinite(block))[0][0])
        raise DataError(f"{where}: row {row + 1}, counted from 1: a value is not finite")
    if about is None or about.kind != "category" or block.ndim != 1:
        return
    is_code = (block >= 0) & (block < len(about.levels)) & np.equal(block, np.trunc(block))
    if not is_code.all():
        place = int(np.flatnonzero(~is_code)[0])
        raise DataError(
            f"{where}: row {start + place + 1}, counted from 1: {block[place]} is not the code of a level; the column has codes"
            f" 0 to {len(about.levels) - 1}"
        )


def row_chunks(num_rows: int, row_bytes: int) -> tuple[int, int]:
    """Return the numbers of rows of a chunk and of a shard; the second is a multiple of the first.

    >>> row_chunks(60000, 784), row_chunks(6040, 3706), row_chunks(5, 8), row_chunks(10**6, 8), row_chunks(100, 2**23)
    ((1024, 8192), (1024, 6144), (1024, 1024), (8192, 8192), (1, 32))
    """
    # Powers of two, so that chunks divide shards whatever the size of a row.
    fitting = max(1, CHUNK_BYTES // max(1, row_bytes))
    wanted = max(CHUNK_ROWS, min(CHUNK_OF_NARROW // max(1, row_bytes), num_rows, SHARD_ROWS))
    chunk = 2 ** int(math.log2(min(wanted, fitting)))
    most = min(SHARD_ROWS, max(1, SHARD_BYTES // max(1, chunk * row_bytes)) * chunk)
    return chunk, min(most, math.ceil(max(1, num_rows) / chunk) * chunk)


# -- writing --------------------------------------------------------------------------------------------------------------


def _write(group: zarr.Group, dataset: Dataset, settings: DataSettings) -> tuple[int, int, dict[str, int]]:
    """Write all arrays; return the numbers of training rows and of held-out rows or cells, and field -> number of codes."""
    rows, about, num_held_out = dict(dataset.rows), dataset.variables, 0
    is_hidden = np.zeros(next(iter(rows.values())).shape[0], bool)
    if dataset.kind == "interactions" and settings.held_out_fraction > 0:
        rows["watched"], films = hold_out_interactions(
            rows["watched"][:], settings.held_out_fraction, settings.split_seed
        )
        num_held_out = len(films.indices)
        for name, values in films._asdict().items():
            write_array(group, f"held_out/{name}", values, [f"{name}_dim_0"])
    elif settings.held_out_fraction > 0:
        is_hidden = _choose_rows(dataset, settings)
        num_held_out = int(is_hidden.sum())
    stays = ~is_hidden
    if settings.left_out is not None:
        is_hidden, stays = _leave_out(group, dataset, stays, settings.left_out)
        num_held_out = int(is_hidden.sum())
    num_codes = {
        name: _write_rows(group, {"rows": stays, "held_out_rows": is_hidden}, name, values, "rows", about.get(name))
        for name, values in sorted(rows.items())
    }
    for name, values in sorted(dataset.test_rows.items()):
        of_all = {"test_rows": np.ones(values.shape[0], bool)}
        of_test = _write_rows(group, of_all, name, values, "test_rows", about.get(name))
        # Unknown of both where it is of one.
        num_codes[name] = min(num_codes[name], of_test) and max(num_codes[name], of_test)
    for name, values in sorted(dataset.truth.items()):
        # A latent may be a scalar.
        truth = np.asarray(values)
        write_array(group, f"truth/{name}", truth, [f"{name}_dim_{axis}" for axis in range(truth.ndim)])
    return int(stays.sum()), num_held_out, num_codes


def _leave_out(
    group: zarr.Group, dataset: Dataset, is_training: np.ndarray, left_out: LeftOut
) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows are left out and which stay, (rows,) bool, and write the indices of the former among training rows."""
    if dataset.kind != "rows":
        raise DataError(
            f"key '{left_out.asked_by or 'data.left_out'}': the dataset is of kind '{dataset.kind}', whose rows are not observations to leave out",
            "remove the analysis that refits from the experiment, and use held_out_fraction",
        )
    training = np.flatnonzero(is_training)
    parts = leave_out(
        left_out,
        len(training),
        lambda key, field: read_column(dataset, left_out.key(key), field, _USES[key])[training],
    )
    chosen, stays = (np.zeros(len(is_training), bool) for _ in parts)
    chosen[training[parts[0]]], stays[training[parts[1]]] = True, True
    if stays.sum() < 2:
        raise DataError(
            f"key '{left_out.asked_by or 'data.left_out'}': leaves {stays.sum()} rows to sample from",
            "use more folds, or more rows",
        )
    write_array(group, f"{LEFT_OUT}/row", np.flatnonzero(parts[0]), [ROW])
    return chosen, stays


def _take_users_out(dataset: Dataset, settings: DataSettings) -> tuple[UnseenUsers, Dataset]:
    """Return the users that the chains do not see, and the dataset of the other users, with its columns and truth."""
    if dataset.kind != "interactions":
        raise DataError(
            f"key 'data.held_out_users': the dataset is of kind '{dataset.kind}', not a watch matrix",
            "use held_out_fraction, or for whole groups of rows, such as all ratings of a fifth of the users,\n"
            "    data:\n      held_out_groups: user\n      held_out_fraction: 0.2",
        )
    watched = dataset.rows["watched"][:]
    unseen = hold_out_users(watched, settings.held_out_users, settings.held_out_fraction, settings.split_seed)
    stays = np.ones(len(watched), bool)
    stays[unseen.rows] = False
    if not len(unseen.rows) or stays.sum() < 2:
        raise DataError(
            f"key 'data.held_out_users': {settings.held_out_users:g} of {len(watched)} users leaves {stays.sum()} to sample from",
            "use a smaller or larger share",
        )
    columns, ids = dict(dataset.columns), dataset.columns.get("user_id", [])
    if ids:
        kept = [each for each, stay in zip(ids, stays, strict=True) if stay]
        columns |= {"user_id": kept, "unseen_user_id": [ids[row] for row in unseen.rows]}  # type: ignore[dict-item]
    truth = {n: np.asarray(v)[stays] if n.startswith(OF_USERS) else v for n, v in dataset.truth.items()}
    rows = {name: values[:][stays] for name, values in dataset.rows.items()}
    return unseen, dataclasses.replace(dataset, rows=rows, columns=columns, truth=truth)


def _write_unseen(group: zarr.Group, unseen: UnseenUsers, truth: Mapping[str, np.ndarray]) -> int:
    """Write users that the chains do not see, with their true latents if known; return the number of their hidden films."""
    of_users = {f"truth_{n}": np.asarray(v)[unseen.rows] for n, v in truth.items() if n.startswith(OF_USERS)}
    arrays = {"rows": unseen.rows, "given": unseen.given, **unseen.hidden._asdict(), **of_users}
    for name, values in arrays.items():
        write_array(group, f"{UNSEEN}/{name}", values, [f"{name}_dim_{axis}" for axis in range(values.ndim)])
    return len(unseen.hidden.indices)


def _choose_rows(dataset: Dataset, settings: DataSettings) -> np.ndarray:
    """Return which rows are held out, (rows,) bool."""
    fraction, seed = settings.held_out_fraction, settings.split_seed
    key = "held_out_groups" if settings.held_out_groups is not None else "held_out_last"
    name: str | None = getattr(settings, key)
    if name is None:
        is_hidden = np.zeros(_length("rows", dataset.rows), bool)
        is_hidden[hold_out_rows(len(is_hidden), fraction, seed)[1]] = True
        return _with_enough_left(is_hidden, fraction)
    values = read_column(dataset, f"key 'data.{key}'", name, _USES[key])
    is_hidden = hold_out_groups(values, fraction, seed) if key == "held_out_groups" else hold_out_last(values, fraction)
    if not is_hidden.any():
        raise DataError(f"key 'data.{key}': '{name}' has the same value in all rows", "choose another field")
    return _with_enough_left(is_hidden, fraction)


def _with_enough_left(is_hidden: np.ndarray, fraction: float) -> np.ndarray:
    if (left := int((~is_hidden).sum())) < 2:
        raise DataError(
            f"key 'data.held_out_fraction': holding out {fraction:g} of {len(is_hidden)} rows leaves {left} to sample from",
            "hold out less, or use more rows",
        )
    return is_hidden


def _write_rows(
    group: zarr.Group,
    parts: Mapping[str, np.ndarray],
    name: str,
    values: RowArray,
    source_part: str,
    about: Variable | None,
) -> int:
    """Write the rows of a field, block by block, to each part of the group that has rows; return `FieldSpec.num_codes`.

    Args:
        group: the group.
        parts: part of the group -> (rows,) bool, which rows belong to it.
        name: the field.
        values: all its rows.
        source_part: part of the dataset that contains the rows, for messages.
        about: the column that the field holds, if any.
    """
    row_bytes = values.dtype.itemsize * math.prod(values.shape[1:])
    writers: dict[str, RowWriter] = {}
    for part, is_of in parts.items():
        if count := int(is_of.sum()):
            sizes = row_chunks(count, row_bytes)
            chunks, shards = ((size, *values.shape[1:]) for size in sizes)
            dims = [ROW, *(f"{name}_dim_{axis}" for axis in range(1, len(values.shape)))]
            shape = (count, *values.shape[1:])
            array = create_array(group, f"{part}/{name}", shape, values.dtype, dims, chunks=chunks, shards=shards)
            writers[part] = RowWriter(array, sizes[1])
    num_codes, is_code = 0, len(values.shape) == 1 and values.dtype.kind in "iu"
    for start, block in _blocks(values, row_bytes):
        is_code = is_code and int(block.min()) >= 0
        num_codes = max(num_codes, int(block.max()) + 1) if is_code else 0
        check_values(f"{source_part}/{name}", start, block, about)
        for part, writer in writers.items():
            writer.append(block[parts[part][start : start + len(block)]])
    for writer in writers.values():
        writer.close()
    return num_codes


def _blocks(values: RowArray, row_bytes: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row and the values of blocks of whole shards."""
    size = row_chunks(values.shape[0], row_bytes)[1]
    size *= max(1, BLOCK_BYTES // max(1, size * row_bytes))
    for start in range(0, values.shape[0], size):
        yield start, np.asarray(values[start : start + size])


def _arrays_in(group: zarr.Group, part: str) -> dict[str, zarr.Array]:
    inner = group.get(part)
    return dict(inner.arrays()) if isinstance(inner, zarr.Group) else {}


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
