"""Files are fetched whole or not at all, and hostile files are rejected before they are read: bombs, links, pickles, pipes and devices."""

from __future__ import annotations

import gzip
import io
import os
import socket
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.feather
import pytest
import zarr

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import check_size, fetch, probe
from bayesmesh.data.sources import gaussian
from bayesmesh.data.sources.arrays import open_arrays
from bayesmesh.data.tables.formats import TableFile
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.records.checked import read_checked

HUGE = 10**12


def test_probe_gives_up_on_a_silent_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as server:
        start = time.monotonic()
        assert probe(f"http://127.0.0.1:{server.getsockname()[1]}/x", limit_s=1.0)
        assert time.monotonic() - start < 3


class Fragile(base.Source):
    """Writes a file, and fails where it is told to."""

    pretty_name = "Fragile"
    fails = False
    content = "x"

    def fetch(self, folder: Path) -> dict[str, Any]:
        assert not list(folder.iterdir()), "starts clean"
        (folder / "part").write_text(self.content)
        if self.fails:
            raise DataError("interrupted")
        return {"origin": "here"}

    def read(self, folder: Path) -> Dataset:
        raise NotImplementedError


@pytest.fixture
def source() -> Fragile:
    return Fragile(gaussian.Options(num_rows=3))


def test_manifest_names_source_options_and_origin(source: Fragile, layout: DataLayout) -> None:
    manifest = fetch(source, {"name": "fragile"}, layout)
    assert read_checked(layout.fetched, must_have_digest=True) == manifest
    assert manifest["source"] == {"name": "fragile"}
    assert manifest["options"]["num_rows"] == 3
    assert manifest["origin"] == {"origin": "here"}
    assert (layout.records / "part").exists()


def test_manifests_differ_where_what_was_kept_or_a_file_of_the_user_does(
    source: Fragile, layout: DataLayout, tmp_path: Path
) -> None:
    """Or shards would be taken for those of the present rows."""
    own = tmp_path / "own.csv"
    own.write_text("x")
    seen = [fetch(source, {}, layout, {"own.csv": own})]
    assert fetch(source, {}, layout, {"own.csv": own}) == seen[0]
    own.write_text("y")
    seen.append(fetch(source, {}, layout, {"own.csv": own}))
    source.content = "other"
    seen.append(fetch(source, {}, layout, {"own.csv": own}))
    assert len({str(manifest) for manifest in seen}) == 3


def test_failed_fetch_leaves_the_files_of_the_last_one(source: Fragile, layout: DataLayout) -> None:
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    assert not layout.fetched.exists()
    assert not layout.records.exists()
    source.fails = False
    fetch(source, {}, layout)
    before = layout.fetched.read_bytes()
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    assert layout.fetched.read_bytes() == before
    assert (layout.records / "part").exists()


def test_fetch_after_a_failed_one_starts_clean(source: Fragile, layout: DataLayout) -> None:
    source.fails = True
    with pytest.raises(DataError):
        fetch(source, {}, layout)
    source.fails = False
    fetch(source, {}, layout)
    assert [path.name for path in layout.records.iterdir()] == ["part"]
    assert sorted(path.name for path in layout.folder.iterdir()) == ["fetched.json", "records"]


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
