"""Hostile files are rejected before they are read: bombs, links to other files, pickles, pipes and devices."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import zarr

from bayesmesh.data.declared_sizes import check_size
from bayesmesh.data.sources.arrays import open_arrays
from bayesmesh.data.tables.files import TableFile
from bayesmesh.errors import DataError

HUGE = 10**12


def of_hdf5(write: Callable[[h5py.File], object]) -> Callable[[Path], object]:
    def write_file(path: Path) -> None:
        with h5py.File(path, "w") as file:
            write(file)

    return write_file


def write_virtual(file: h5py.File) -> None:
    layout = h5py.VirtualLayout(shape=(5,), dtype="f8")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(5,))
    file.create_virtual_dataset("group/x", layout)


def write_npz(path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (HUGE,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue())


def write_zarr(path: Path, **layout: object) -> None:
    zarr.open_group(path, mode="w").create_array("x", shape=(HUGE,), dtype="f8", **layout)


def write_nulls(path: Path) -> None:
    table = pa.table({"x": pa.nulls(2**20)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        for _ in range(200):
            writer.write_table(table)


def read(path: Path) -> None:
    if ".csv" in path.name or ".feather" in path.name:
        file = TableFile(path)
        list(file.blocks(file.names))
    else:
        with open_arrays(path):
            pass


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("x.h5", of_hdf5(lambda f: f.create_dataset("x", (9,), "u1", external=[("/etc/passwd", 0, 9)])), "'x' keeps its values in other files"),
        ("x.h5", of_hdf5(write_virtual), "'group/x' keeps its values in other files"),
        ("x.h5", of_hdf5(lambda f: f.update({"y": 1.0, "a/x": h5py.ExternalLink("/etc/x", "/x")})), "'a/x' is a link to another file"),
        ("x.nc", of_hdf5(lambda f: f.update({"x": h5py.ExternalLink("other.h5", "/x")})), "'x' is a link to another file"),
        ("x.h5", of_hdf5(lambda f: f.create_dataset("x", (HUGE,), "f8", chunks=(2**20,))), "'x' would expand"),
        ("x.h5", of_hdf5(lambda f: f.create_dataset("x", (2**8,), "f8", chunks=(2**8,), maxshape=(None,))), ""),
        ("x.npz", write_npz, r"'x': shape \(1000000000000,\) of float64 does not fit"),
        ("x.npz", lambda path: np.savez(path, x=np.array([{}], object)), "'x': holds pickled Python objects"),
        ("x.json", lambda path: path.write_text('{"x": ' + "[" * 100_000), "recursion"),
        ("x.json", lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2**30), "which are read as one"),
        ("x.zarr", lambda path: write_zarr(path, chunks=(2**20,)), "'x' would expand"),
        ("x.csv.gz", lambda path: path.write_bytes(gzip.compress(b"1,1\n" * 2**24 + b"1,1\n", 1)), "the text would expand"),
        ("x.csv.zst", lambda path: path.write_bytes(pa.Codec("zstd").compress(b"1,1\n" * 2**24 + b"1\n", asbytes=True)), "the text would expand"),
        ("x.feather", write_nulls, "the table would expand"),
        ("x.feather", lambda path: pa.feather.write_feather(pa.table({"x": ["a" * 2**21]}), path), "'x' holds a text of 2,097,152 bytes"),
        ("x.csv", lambda path: path.write_text("a,b\n1,2\n3," + "x" * 2**23), "is longer than 4,194,304 bytes"),
        ("x.csv", lambda path: path.write_text(",".join(f"c{i}" for i in range(100_001)) + "\n"), "100,001 columns"),
        ("x.csv", os.mkfifo, "not a regular file"),
    ],
)  # fmt: skip
def test_hostile_files_are_rejected_by_name(
    tmp_path: Path, name: str, write: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / name
    write(path)
    if not message:
        with open_arrays(path) as arrays:
            assert arrays["x"][:3].tolist() == [0, 0, 0]
        return
    with pytest.raises(DataError, match=message) as caught:
        read(path)
    assert str(path) in caught.value.message


def test_large_contents_may_expand_as_data_do_and_are_read_in_pieces(tmp_path: Path) -> None:
    check_size(tmp_path, "'x'", 2**30, 1)
    check_size(tmp_path, "'x'", 2**40, 2**33, piece=2**29)
    with pytest.raises(DataError, match="would expand from 1 bytes to 1,073,741,825"):
        check_size(tmp_path, "'x'", 2**30 + 1, 1)
    with pytest.raises(DataError, match="read in pieces of 536,870,913 bytes"):
        check_size(tmp_path, "'x'", 2**30, 2**30, piece=2**29 + 1)
