"""The user's arrays: NPZ, Zarr, NetCDF, HDF5, or JSON as in posteriordb; one field for each array with a row axis."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from bayesmesh.data import base
from bayesmesh.data.base import Dataset, RowArray
from bayesmesh.data.sources._array_files import open_arrays
from bayesmesh.data.sources.options import ArraysOptions as Options
from bayesmesh.errors import DataError, suggest
from bayesmesh.store.arrays import create_array, open_group
from bayesmesh.store.records.files import find_files, stores_of
from bayesmesh.store.records.sealed import read_sealed, write_sealed

_FOLDER, _ABOUT = "arrays.zarr", "arrays.json"
_BLOCK_BYTES = 2**22
_FIELD_NAME = re.compile(r"(?!__)[^/\x00-\x1f]{1,200}")


class Source(base.Source):
    """One field for each array, with its dtype; single numbers are constants."""

    pretty_name = "Arrays"
    offers = ()
    options: Options

    def fetch(self, folder: Path) -> dict[str, object]:
        """Copy the arrays to `folder`, block by block.

        Raises:
            DataError: a file is damaged, or its arrays have different numbers of rows; names the file and the array.
        """
        stores = stores_of(find_files(self.options.files, "data.files"))
        group = open_group(folder / _FOLDER, "w")
        constants: dict[str, float | int] = {}
        lengths: dict[str, int] = {}
        for number, path in enumerate(stores):
            with open_arrays(path, self.options.format) as found:
                chosen = _choose(path, found, self.options.arrays)
                scalars = {name: _scalar(array) for name, array in chosen.items() if not array.shape}
                for name in (name for name, value in scalars.items() if not math.isfinite(value)):
                    raise DataError(
                        f"{path}: '{name}' is {scalars[name]}",
                        "correct the file, or name other arrays in the key 'data.arrays'",
                    )
                fields = {name: array for name, array in chosen.items() if array.shape}
                _check(path, fields)
                if number and (set(fields) != set(lengths) or scalars != constants):
                    _refuse_others(path, stores[0], set(fields) ^ set(lengths), scalars, constants)
                constants = scalars
                for name, array in fields.items():
                    lengths[name] = _append(path, group, name, array)
        if not lengths:
            raise DataError(f"{stores[0]}: no array has rows", "correct the key 'data.files' or 'data.arrays'")
        about = {"constants": constants, "fields": sorted(lengths), "rows": next(iter(lengths.values()))}
        write_sealed(folder / _ABOUT, about)
        return {"origin": "files", **about}

    def read(self, folder: Path) -> Dataset:
        """Return the arrays; ranges of rows are read on demand."""
        about = read_sealed(folder / _ABOUT, "run the fetch stage again")
        group = open_group(folder / _FOLDER)
        rows: dict[str, Any] = {name: group[name] for name in about["fields"]}
        return Dataset(
            rows=rows,
            constants={**about["constants"], **self.options.constants},
            declared_counts={"rows": about["rows"]},
            facts={"rows_read": about["rows"]},
        )


def _scalar(array: Any) -> float | int:
    value: float | int = np.asarray(array[()]).item()
    return value


def _choose(path: Path, found: Mapping[str, RowArray], wanted: Mapping[str, str]) -> dict[str, RowArray]:
    for name in wanted.values():
        if name not in found:
            raise DataError(f"{path}: no array '{name}'", suggest(name, found))
    chosen = {field: found[name] for field, name in (wanted or {name: name for name in found}).items()}
    for field, array in chosen.items():
        if not _FIELD_NAME.fullmatch(field) or field in (".", ".."):
            raise DataError(
                f"{path}: '{field}' cannot be the name of a field",
                f"give it one:\n    data:\n      arrays:\n        {field.rpartition('/')[2] or 'x'}: {field}",
            )
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            raise DataError(
                f"{path}: '{field}' holds {array.dtype} instead of numbers",
                "name the arrays to read in the key 'data.arrays'",
            )
    return chosen


def _check(path: Path, fields: Mapping[str, RowArray]) -> None:
    """Refuse arrays whose numbers of rows differ."""
    lengths = {name: array.shape[0] for name, array in fields.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DataError(
            f"{path}: the first axes of the arrays have unequal lengths: {listed}",
            "name those whose first axis runs over the rows:\n    data:\n      arrays:\n        y: y",
        )
    for name, array in fields.items():
        if 0 in array.shape:
            raise DataError(
                f"{path}: '{name}' has shape {array.shape}: it holds nothing", "name others in 'data.arrays'"
            )


def _refuse_others(
    path: Path, first: Path, names: set[str], scalars: Mapping[str, object], constants: Mapping[str, object]
) -> None:
    remedy = "read files of the same arrays, or name those that all have in the key 'data.arrays'"
    if names:
        raise DataError(f"{path}: has other arrays than {first}: {', '.join(sorted(names))}", remedy)
    differing = sorted(n for n in {*scalars, *constants} if scalars.get(n) != constants.get(n))
    raise DataError(f"{path}: has another number '{differing[0]}' than {first}", remedy)


def _fits(values: RowArray, dtype: np.dtype, step: int) -> bool:
    """Return whether every number or text of an array is the same in a dtype of the same kind; reads `step` rows at a time."""
    if np.can_cast(values.dtype, dtype, "safe"):
        return True
    is_float = dtype.kind in "fc"
    with np.errstate(over="ignore"):
        blocks = (np.asarray(values[start : start + step]) for start in range(0, values.shape[0], step))
        return all(np.array_equal(block.astype(dtype), block, equal_nan=is_float) for block in blocks)


def _append(path: Path, group: zarr.Group, name: str, values: RowArray) -> int:
    """Append the rows of an array to the stored array of the same name, and return the total number of rows."""
    row_bytes = max(1, values.dtype.itemsize * math.prod(values.shape[1:]))
    step = max(1, _BLOCK_BYTES // row_bytes)
    array = group.get(name)
    if array is None:
        shape, dtype = (0, *values.shape[1:]), values.dtype.newbyteorder("=")
        dims = ["row", *(f"{name}_dim_{axis}" for axis in range(1, len(shape)))]
        array = create_array(group, name, shape, dtype, dims, chunks=(min(step, values.shape[0]), *shape[1:]))
    assert isinstance(array, zarr.Array)
    is_narrower = values.dtype.kind == array.dtype.kind and not _fits(values, array.dtype, step)
    if is_narrower or (array.shape[1:], array.dtype.kind) != (values.shape[1:], values.dtype.kind):
        raise DataError(
            f"{path}: '{name}' has rows of shape {values.shape[1:]} and dtype {values.dtype}, but earlier files"
            f" {array.shape[1:]} and {array.dtype}",
            f"write '{name}' as {values.dtype} into all files" if is_narrower else "read files of the same arrays",
        )
    before = array.shape[0]
    array.resize((before + values.shape[0], *array.shape[1:]))
    for start in range(0, values.shape[0], step):
        block = np.asarray(values[start : start + step])
        array[before + start : before + start + len(block)] = block
    return before + values.shape[0]
