"""Open a file of arrays: NPZ, Zarr, NetCDF, HDF5, or JSON as in posteriordb; ranges of rows can be read by themselves."""

from __future__ import annotations

import contextlib
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from bayesmesh.data.base import RowArray
from bayesmesh.errors import DataError

ArrayFormat = Literal["npz", "zarr", "netcdf", "hdf5", "json"]

ENDINGS: dict[str, ArrayFormat] = {
    ".npz": "npz", ".zarr": "zarr", ".nc": "netcdf", ".nc4": "netcdf", ".cdf": "netcdf", ".h5": "hdf5", ".hdf5": "hdf5",
    ".json": "json",
}  # fmt: skip
"""Extension of a file or folder -> its format."""

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
        except (zipfile.BadZipFile, EOFError, RuntimeError, OSError) as error:
            # Decoders and HDF5 set no errno for errors in the content.
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise _damaged(path, form, error) from error


_DAMAGE = (ValueError, LookupError, TypeError, EOFError, OSError, zipfile.BadZipFile)


def _damaged(path: Path, form: str, error: Exception) -> DataError:
    said = " ".join(str(error).split())[:300]
    return DataError(
        f"{path}: not a whole file of the format {form}: {said}", "correct the file, or the key 'data.format'"
    )


def _open_npz(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    # Never allow pickles, which can run code.
    archive = stack.enter_context(np.load(path, allow_pickle=False))
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("a single array; save it with np.savez and a name")
    return {name: _of_archive(archive, name) for name in archive.files}


def _of_archive(archive: Any, name: str) -> np.ndarray:
    try:
        values: np.ndarray = archive[name]
    except ValueError as error:
        raise ValueError(f"'{name}': {error}") from error
    return values


def _open_zarr(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    import zarr

    group = zarr.open_group(str(path), mode="r")
    members = group.members(max_depth=None)
    return {name: _decoded(each, dict(each.attrs)) for name, each in members if isinstance(each, zarr.Array)}


def _open_hdf5(path: Path, stack: contextlib.ExitStack) -> dict[str, RowArray]:
    import h5py

    file = stack.enter_context(h5py.File(path, "r"))
    found: dict[str, RowArray] = {}

    def visit(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            found[name] = item

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
