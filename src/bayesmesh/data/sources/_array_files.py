"""Open a file of arrays: NPZ, Zarr, NetCDF, HDF5, or JSON as in posteriordb; ranges of rows can be read by themselves."""

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

from bayesmesh.data.base import RowArray
from bayesmesh.data.declared_sizes import check_size
from bayesmesh.errors import DataError

ArrayFormat = Literal["npz", "zarr", "netcdf", "hdf5", "json"]

ENDINGS: dict[str, ArrayFormat] = {
    ".npz": "npz", ".zarr": "zarr", ".nc": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf", ".h5": "hdf5", ".hdf5": "hdf5",
    ".json": "json",
}  # fmt: skip
"""Extension of a file or folder -> its format."""

MOST_JSON = 2**26
"""Largest number of bytes of a JSON file, whose numbers take several times as much memory."""

_FILL_VALUES = ("_FillValue", "missing_value")


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
    found = json.loads(path.read_bytes(), parse_constant=_refuse_constant, object_pairs_hook=_without_twins)
    if not isinstance(found, dict):
        raise ValueError('not an object such as {"N": 2, "y": [1.5, 2.5]}')
    return {name: _array(name, value) for name, value in found.items()}


def _without_twins(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' stands there twice")
    return dict(pairs)


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
