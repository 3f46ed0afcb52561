"""export: write the posterior of an experiment as NetCDF, or its draws as one table, in bounded memory."""

from __future__ import annotations

import argparse
import functools
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import h5netcdf
import h5py
import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import zarr

from bayesmesh.errors import ConfigError
from bayesmesh.files import atomic_path
from bayesmesh.store.arrays import dimension_names, open_group, read_part
from bayesmesh.store.layout import CHAIN, DETERMINISTICS, DRAW, ExperimentLayout
from bayesmesh.store.posterior.coordinates import drawn_arrays, event_size
from bayesmesh.store.posterior.reader import draws_of_block
from bayesmesh.workflow.posterior import find_finished, refuse_overwriting_data, warn_of_failure

_log = logging.getLogger("bayesmesh")

BLOCK_BYTES = 32 * 2**20
"""Draws of one chain that are in memory at a time, in bytes; one draw may have more."""

MOST_COLUMNS = 10_000
"""Most columns of a table."""


def run(arguments: argparse.Namespace) -> int:
    """Write the file, log its path and size, and return the exit code.

    Raises:
        ConfigError: there is no posterior, its diagnostics are unfinished, or a table would be too wide.
        StoreError: a result is damaged, or is not what its job wrote.
    """
    name, form, is_netcdf = arguments.experiment, arguments.format, arguments.format == "netcdf"
    layout = ExperimentLayout(arguments.results, name)
    job = find_finished(layout)
    output = arguments.output or Path(f"{name}-posterior.{'nc' if is_netcdf else form}")
    refuse_overwriting_data(job, output)
    warn_of_failure(layout, "these draws may not represent the posterior")
    with atomic_path(output) as partial:
        content = write_netcdf(layout.posterior, partial) if is_netcdf else write_table(layout.posterior, partial, form)
    _log.info("%s: %s, %.1f MiB", output, content, output.stat().st_size / 2**20)
    return 0


def write_netcdf(posterior: Path, path: Path) -> str:
    """Write all groups of a posterior as NetCDF 4, which has ArviZ's schema as the posterior has, and return what was written.

    Memory holds one block of `BLOCK_BYTES`, or one array without draws, whatever the number of draws.

    Args:
        posterior: ``posterior.zarr``.
        path: file to write.
    """
    root = open_group(posterior)
    with h5netcdf.File(path, "w") as file:
        file.attrs.update(root.attrs.asdict())
        for name, group in sorted(root.groups()):
            written = file.create_group(name)
            written.attrs.update(group.attrs.asdict())
            for array_name, array in sorted(group.arrays()):
                _copy(array, written, array_name)
        return f"groups {', '.join(file.groups)}"


def _copy(array: zarr.Array, group: h5netcdf.Group, name: str) -> None:
    """Write an array of Zarr into a group of NetCDF, block by block."""
    dims, dtype = dimension_names(array), array.dtype
    for dim, length in zip(dims, array.shape, strict=True):
        if dim not in group.dimensions:
            group.dimensions[dim] = length
    is_text, is_bool = dtype.kind in "TO", dtype.kind == "b"
    variable = group.create_variable(name, dims, h5py.string_dtype() if is_text else "int8" if is_bool else dtype)
    # NetCDF has no truth values; xarray reads them by this attribute.
    variable.attrs.update(array.attrs.asdict() | ({"dtype": "bool"} if is_bool else {}))
    for part in _parts([array]) if dims[:2] == (CHAIN, DRAW) else [()]:
        values = read_part(array, *part)
        variable[part or ...] = values.astype(object) if is_text else values


def _parts(arrays: list[zarr.Array]) -> Iterator[tuple[slice, slice]]:
    """Yield ranges of draws of one chain, chain by chain, of at most `BLOCK_BYTES` over all arrays."""
    num_chains, num_draws = arrays[0].shape[:2]
    step = draws_of_block([(array.shape[2:], array.dtype) for array in arrays], 1, num_draws, BLOCK_BYTES)
    for chain, start in itertools.product(range(num_chains), range(0, num_draws, step)):
        yield slice(chain, chain + 1), slice(start, min(start + step, num_draws))


def write_table(posterior: Path, path: Path, form: str) -> str:
    """Write latents and deterministics as a table, and return what was written.

    A row is a draw of a chain, chain after chain. The columns are ``chain``, ``draw`` and one for each scalar, under the name that
    ArviZ's tables give it, such as ``beta[x]``. Memory holds one block of `BLOCK_BYTES`, as draws, as columns and encoded: a few
    hundred MB, whatever the number of draws. Parquet also keeps 2 kB for each column of each block until the file is complete.

    Args:
        posterior: ``posterior.zarr``.
        path: file to write.
        form: ``parquet`` or ``csv``.

    Raises:
        ConfigError: there would be more than `MOST_COLUMNS` scalars.
    """
    root, arrays = open_group(posterior), []
    columns: list[tuple[str, pyarrow.DataType]] = [(CHAIN, pyarrow.int32()), (DRAW, pyarrow.int32())]
    for group_name in ("posterior", DETERMINISTICS):
        if not isinstance(group := root.get(group_name), zarr.Group):
            continue
        for name, array in drawn_arrays(group).items():
            arrays.append(array)
            if len(columns) + event_size(array) > MOST_COLUMNS:
                raise ConfigError(
                    f"{posterior}: more than {MOST_COLUMNS:,} scalars, too many for the columns of a table",
                    "write --format netcdf, and choose arrays with xarray or ncdf4",
                )
            columns += [(label, pyarrow.from_numpy_dtype(array.dtype)) for label in _labels(group, name, array)]
    schema = pyarrow.schema(columns)
    num_chains, num_draws = arrays[0].shape[:2]
    # Draws rarely repeat, and dictionaries and statistics of them take memory.
    parquet = functools.partial(pyarrow.parquet.ParquetWriter, use_dictionary=False, write_statistics=False)
    with (parquet if form == "parquet" else pyarrow.csv.CSVWriter)(path, schema) as file:
        for chain, draws in _parts(arrays):
            numbers = np.arange(num_draws, dtype=np.int32)[draws]
            blocks = [read_part(array, chain, draws).reshape(len(numbers), -1) for array in arrays]
            cells = [np.full_like(numbers, chain.start), numbers, *(cells for block in blocks for cells in block.T)]
            file.write_table(pyarrow.Table.from_arrays([*map(pyarrow.array, cells)], schema=schema))
    return f"{num_chains * num_draws:,} rows of {len(columns):,} columns"


def _labels(group: zarr.Group, name: str, array: zarr.Array) -> list[str]:
    """Return ArviZ's names of the scalars of an array, in row-major order."""
    axes = [map(str, read_part(cast(zarr.Array, group[dim])).tolist()) for dim in dimension_names(array)[2:]]
    return [f"{name}[{', '.join(entries)}]" for entries in itertools.product(*axes)] if axes else [name]
