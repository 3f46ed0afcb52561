"""The user's arrays: NPZ, Zarr, NetCDF, HDF5, or JSON as in posteriordb; one field for each array with a row axis."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import zarr

from bayesmesh.data import base
from bayesmesh.data.base import FIELD_NAME, Dataset, RowArray
from bayesmesh.data.fetching import check_size
from bayesmesh.data.sources.options import ArraysOptions as Options
from bayesmesh.data.tables.formats import without_twins
from bayesmesh.errors import DataError, suggest
from bayesmesh.store.arrays import create_array, open_group
from bayesmesh.store.records.checked import read_checked, write_checked
from bayesmesh.store.records.files import find_files, stores_of

_FOLDER, _ABOUT = "arrays.zarr", "arrays.json"
_BLOCK_BYTES = 2**22

ArrayFormat = Literal["npz", "zarr", "netcdf", "hdf5", "json"]

ENDINGS: dict[str, ArrayFormat] = {
    ".npz": "npz", ".zarr": "zarr", ".nc": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf", ".h5": "hdf5", ".hdf5": "hdf5",
    ".json": "json",
}  # fmt: skip
"""Extension of a file or folder -> its format."""

MOST_JSON = 2**26
"""Largest number of bytes of a JSON file, whose numbers take several times as much memory."""

_FILL_VALUES = ("_FillValue", "missing_value")


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
        write_checked(folder / _ABOUT, about)
        return {"origin": "files", **about}

    def read(self, folder: Path) -> Dataset:
        """Return the arrays; ranges of rows are read on demand."""
        about = read_checked(folder / _ABOUT, "run the fetch stage again")
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
        if not FIELD_NAME.fullmatch(field):
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
    raise DataError(f"{path}: constant '{differing[0]}' differs from that in {first}", remedy)


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


# -- files of arrays, whose ranges of rows can be read by themselves ------------------------------------------------------


class CodedArray:
    """Numbers that a file with CF conventions holds as codes: ``code * scale_factor + add_offset``, NaN for the fill value.

    Reference:
        NetCDF Climate and Forecast Metadata Conventions 1.11, sections 2.5.1 and 8.1.

    Args:
        values: the codes.
        attributes: attributes of the variable.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, values: RowArray, attributes: Mapping[str, Any]) -> None:
        self._values, self.shape = values, values.shape
        self._fill = [np.ravel(attributes[name])[0] for name in _FILL_VALUES if name in attributes]
        self._scale, self._offset = (
            float(np.ravel(attributes.get(name, default))[0])
            for name, default in (("scale_factor", 1.0), ("add_offset", 0.0))
        )

    def __getitem__(self, rows: slice) -> np.ndarray:
        codes = np.asarray(self._values[rows] if self.shape else self._values[()])  # type: ignore[index]
        values = codes.astype(np.float64) * self._scale + self._offset
        for fill in self._fill:
            values = np.where(codes == fill, np.nan, values)
        return values


@contextlib.contextmanager
def open_arrays(path: Path, form: ArrayFormat | None = None) -> Iterator[dict[str, RowArray]]:
    """Yield name -> array of a file; those in groups have names such as ``group/x``. They can be read within the block.

    Args:
        path: the file, or the folder of a Zarr store.
        form: its format; None determines it from the extension.

    Raises:
        DataError: the format is unknown, or the file is damaged or has other content.
    """
    form = form or ENDINGS.get(path.suffix.lower())
    if form is None:
        raise DataError(
            f"{path}: the format of the file is not known from its ending",
            f"name it in the key 'data.format', one of {', '.join(get_args(ArrayFormat))}; known: {', '.join(ENDINGS)}",
        )
    with contextlib.ExitStack() as stack:
        try:
            arrays = _OPEN[form](path, stack)
        except DataError:
            raise
        except _DAMAGE as error:
            raise _damaged(path, form, error) from error
        try:
            yield arrays
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, MemoryError, OSError) as error:
            # Decoders and HDF5 set no errno for errors in the content.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _damaged(path, form, error) from error


_DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    EOFError,
    OSError,
    RuntimeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)


def _damaged(path: Path, form: str, error: Exception) -> DataError:
    said = " ".join(str(error).split())[:300]
    return DataError(
        f"{path}: not a whole file of the format {form}: {said}", "correct the file, or the key 'data.format'"
    )


class _Member:
    """An array of an NPZ archive; rows are decompressed as they are read, and pickled objects never."""

    def __init__(
        self, path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, stack: contextlib.ExitStack
    ) -> None:
        name = info.filename.removesuffix(".npy")
        self._stream = stack.enter_context(archive.open(info))
        reads = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(self._stream)
        if version not in reads:
            raise ValueError(f"'{name}': not an array of numbers")
        try:
            self.shape, self._is_fortran, self.dtype = reads[version](self._stream)
        except ValueError as error:
            raise ValueError(f"'{name}': its header does not describe an array") from error
        self._start, num_bytes = self._stream.tell(), math.prod(self.shape) * self.dtype.itemsize
        if self.dtype.hasobject:
            raise ValueError(f"'{name}': holds pickled Python objects, which can run code")
        if self._start + num_bytes != info.file_size:
            raise ValueError(f"'{name}': shape {self.shape} of {self.dtype} does not fit its {info.file_size:,} bytes")
        check_size(path, f"'{name}'", num_bytes, info.compress_size)

    @functools.cached_property
    def _whole(self) -> np.ndarray:
        self._stream.seek(self._start)
        values = np.frombuffer(self._stream.read(), self.dtype)
        return values.reshape(self.shape, order="F" if self._is_fortran else "C")

    def __getitem__(self, rows: slice | tuple[()]) -> np.ndarray:
        if not isinstance(rows, slice) or self._is_fortran:
            return self._whole[rows]
        start, stop, _ = rows.indices(self.shape[0])
        row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize
        self._stream.seek(self._start + start * row_bytes)
        values = np.frombuffer(self._stream.read((stop - start) * row_bytes), self.dtype)
        return values.reshape(stop - start, *self.shape[1:])


def _open_npz(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    return {info.filename.removesuffix(".npy"): _Member(path, archive, info, stack) for info in members}


def _open_zarr(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    import zarr

    group = zarr.open_group(str(path), mode="r")
    arrays = {name: each for name, each in group.members(max_depth=None) if isinstance(each, zarr.Array)}
    stored = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    for name, each in arrays.items():
        check_size(path, f"'{name}'", each.nbytes, stored, math.prod(each.chunks) * each.dtype.itemsize)
    return {name: _decoded(each, dict(each.attrs)) for name, each in arrays.items()}


_COPY = "write a file that holds all values itself, for example with h5py: target[name] = source[name][()]"


def _open_hdf5(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    import h5py

    file = stack.enter_context(h5py.File(path, "r"))
    found: dict[str, RowArray] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            if item.external or item.is_virtual:
                raise DataError(f"{path}: '{name}' keeps its values in other files", _COPY)
            piece = math.prod(item.chunks or (0,)) * item.dtype.itemsize
            check_size(path, f"'{name}'", item.nbytes, item.id.get_storage_size(), piece)
            found[name] = item

    # An error raised in the function would be lost.
    link = file.visititems_links(lambda name, link: name if isinstance(link, h5py.ExternalLink) else None)
    if link is not None:
        raise DataError(f"{path}: '{link}' is a link to another file", _COPY)
    file.visititems(visit)
    return found


def _open_netcdf(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    with path.open("rb") as handle:
        is_hdf5 = handle.read(4) == b"\x89HDF"
    if is_hdf5:
        import h5py

        found = _open_hdf5(path, stack)
        # Dimensions without values are stored as arrays too.
        return {
            name: _decoded(each, dict(each.attrs))
            for name, each in found.items()
            if isinstance(each, h5py.Dataset) and not _is_bare_dimension(each.attrs)
        }
    from scipy.io import netcdf_file

    file = stack.enter_context(netcdf_file(str(path), "r", mmap=False))
    return {name: _decoded(each, each._attributes) for name, each in file.variables.items()}


def _is_bare_dimension(attributes: Mapping[str, Any]) -> bool:
    name = attributes.get("NAME", b"")
    return isinstance(name, bytes) and name.startswith(b"This is a netCDF dimension but not a netCDF variable")


def _decoded(values: Any, attributes: Mapping[str, Any]) -> RowArray:
    kind = np.dtype(getattr(values, "dtype", None) or values.data.dtype).kind
    is_coded = kind in "iuf" and any(name in attributes for name in (*_FILL_VALUES, "scale_factor", "add_offset"))
    array: RowArray = values if hasattr(values, "dtype") else values.data
    return CodedArray(array, attributes) if is_coded else array


def _open_json(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    del stack
    if path.stat().st_size > MOST_JSON:
        raise ValueError(f"more than {MOST_JSON:,} bytes, which are read as one; write NPZ instead")
    found = json.loads(path.read_bytes(), parse_constant=_refuse_constant, object_pairs_hook=without_twins)
    if not isinstance(found, dict):
        raise ValueError('not an object such as {"N": 2, "y": [1.5, 2.5]}')
    return {name: _array(name, value) for name, value in found.items()}


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _array(name: str, value: object) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"'{name}': lists of unequal lengths") from error
    if array.dtype.kind not in "biuf":
        raise ValueError(f"'{name}': holds something else than numbers")
    if array.dtype.kind in "iu" and array.size and math.isfinite(float(array.max())):
        return array.astype(np.int64)
    return array


_OPEN: dict[ArrayFormat, Callable[[Path, contextlib.ExitStack], dict[str, RowArray]]] = {
    "npz": _open_npz, "zarr": _open_zarr, "hdf5": _open_hdf5, "netcdf": _open_netcdf, "json": _open_json,
}  # fmt: skip
