"""Turn the data argument of `bayesmesh.sample` into settings of a source: tables and arrays become files.

A file is named after its content, so equal tables are the same dataset, and a different one never replaces it.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeGuard, cast

from bayesmesh.config.registry import list_components
from bayesmesh.errors import DataError
from bayesmesh.files import hash_file, sync

_PACKAGE = str(Path(__file__).parents[1])

_OF_ARRAYS = (".npz", ".zarr", ".nc", ".h5", ".hdf5", ".json")
"""Extensions of files that hold arrays; others hold tables."""


class _ArrowTable(Protocol):
    """A table that Arrow can read: from pandas, Polars or Arrow itself."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_table(value: object) -> TypeGuard[_ArrowTable]:
    """Return whether a value is a data frame or another table."""
    return hasattr(value, "__arrow_c_stream__") and not isinstance(value, type)


def data_settings(data: object, folder: Path) -> object:
    """Return the settings of the data, as in the key ``data`` of an experiment.

    Args:
        data: a table, a mapping of arrays, the path of a file, a list of these, the name of a source, or settings.
        folder: folder for the files of tables and arrays.

    Raises:
        DataError: a table or an array cannot be stored.
    """
    _refuse_nameless(data)
    if isinstance(data, Mapping) and "source" in data:
        files = data.get("files")
        _refuse_nameless(files)
        if not _is_given(files):
            return dict(data)
        written = {**data, "files": write_given(files, folder)}
        if data["source"] == "table" and (levels := _ordered_levels(files)):
            written["levels"] = {**levels, **data.get("levels", {})}
        return written
    if _is_given(data):
        levels = _ordered_levels(data)
        about = {"source": "table" if is_table(data) else "arrays", "files": write_given(data, folder)}
        return {**about, "levels": levels} if levels else about
    if isinstance(data, list | tuple) and data:
        settings = data_settings(data[0], folder)
        return {**settings, "files": list(data)} if isinstance(settings, dict) else data
    if isinstance(data, str) and (data in list_components("source") or _is_code(data)):
        return {"source": data}
    if isinstance(data, str | Path):
        is_arrays = Path(data).suffix.lower() in _OF_ARRAYS
        return {"source": "arrays" if is_arrays else "table", "files": str(data)}
    return {"source": data} if isinstance(data, type) else data


def _ordered_levels(table: object) -> dict[str, list[str]]:
    """Return all levels of a pandas data frame's ordered categories, which no file keeps, even those without rows."""
    found = {}
    for name, dtype in dict(getattr(table, "dtypes", {})).items() if hasattr(table, "iloc") else ():
        categories = [*getattr(dtype, "categories", ())] if getattr(dtype, "ordered", False) else []
        if categories and all(isinstance(each, str) for each in categories):
            found[str(name)] = categories
    return found


def _is_code(text: str) -> bool:
    """Return whether a text is ``module:attribute`` and not a path."""
    return ":" in text and os.sep not in text and not Path(text).exists()


def _refuse_nameless(value: object) -> None:
    """Refuse an array, or a single column of pandas, Polars or Arrow, which exports itself as a table does."""
    if is_table(value) and type(value).__name__ in ("Series", "ChunkedArray"):
        raise DataError("key 'data': a single column", 'give a data frame, such as frame[["y"]], or {"y": values}')
    if _is_of_numbers(value):
        raise DataError("key 'data': an array without column names", 'name its columns: {"x": array[:, 0], "y": array[:, 1]}, or {"x": array} for a matrix')  # fmt: skip


def _is_of_numbers(value: object) -> bool:
    """Return whether a value is an unnamed array of numbers from NumPy, JAX or PyTorch."""
    kind, names = (getattr(getattr(value, "dtype", None), part, None) for part in ("kind", "names"))
    is_array = type(value).__module__.partition(".")[0] in ("numpy", "jax", "jaxlib", "torch") and hasattr(
        value, "shape"
    )
    return is_array and names is None and kind not in ("U", "S", "O")


def _is_given(value: object) -> bool:
    return is_table(value) or (isinstance(value, Mapping) and "source" not in value)


def write_given(value: object, folder: Path) -> str:
    """Write a table or a mapping of arrays into a file named after its content, and return its path.

    Raises:
        DataError: a column or an array holds values that cannot be stored.
    """
    suffix = ".parquet" if is_table(value) else ".npz"
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{os.getpid()}{suffix}.partial"
    try:
        with partial.open("wb") as file:
            if is_table(value):
                _write_table(value, file)
            else:
                _write_arrays(cast(Mapping[str, object], value), file)
        target = folder / f"{hash_file(partial)[:16]}{suffix}"
        sync(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return str(target)


def _write_table(table: _ArrowTable, file: BinaryIO) -> None:
    """Write a table in blocks; the index of a data frame is left out."""
    import pyarrow
    import pyarrow.parquet

    names = Counter(map(str, getattr(table, "columns", ())) if hasattr(table, "iloc") else ())
    for name in (name for name, count in names.items() if count > 1):
        raise DataError(f"bayesmesh.sample: data: column '{name}' appears twice", "rename one, or leave one out")
    try:
        if hasattr(table, "iloc"):
            index: Any = getattr(table, "index", None)
            if any(name is not None for name in index.names) or index.dtype.kind not in "iu":
                message = f"the index of the data frame, {index.names[0] or 'without a name'}, is left out; frame.reset_index() makes it a column"
                warnings.warn(message, stacklevel=2, skip_file_prefixes=(_PACKAGE,))
            found = pyarrow.Table.from_pandas(table, preserve_index=False)
        else:
            found = pyarrow.table(table)
        pyarrow.parquet.write_table(found, file)
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        problem = " ".join(map(str, error.args))
        raise DataError(
            f"bayesmesh.sample: data: the table cannot be stored: {problem}", "give each column one kind of value"
        ) from error


def _write_arrays(arrays: Mapping[str, object], file: BinaryIO) -> None:
    import numpy as np

    def checked() -> Iterator[tuple[str, np.ndarray]]:
        for name, value in arrays.items():
            try:
                array = np.asarray(value)
            except ValueError as error:
                raise DataError(f"bayesmesh.sample: data: '{name}' is not an array: {error}", _RECTANGULAR) from error
            if array.dtype.kind not in "biufU" or name in ("file", "allow_pickle"):
                problem = (
                    "is a name that NPZ files do not take"
                    if array.dtype.kind in "biufU"
                    else f"is an array of {array.dtype}"
                )
                raise DataError(f"bayesmesh.sample: data: '{name}' {problem}", _RECTANGULAR)
            yield str(name), array

    # Never as pickled objects.
    np.savez(file, allow_pickle=False, **dict(checked()))


_RECTANGULAR = "give arrays of numbers, with the rows first: name -> array"
