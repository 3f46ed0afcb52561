"""The source `arrays`: the same data from every format, and refusals that name file and array."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr
from scipy.io import netcdf_file

from bayesmesh.data.base import Dataset
from bayesmesh.data.sources.arrays import Options, Source
from bayesmesh.errors import DataError

SCHOOLS = {"J": 8, "y": [28, 8, -3, 7, -1, 1, 18, 12], "sigma": [15.0, 10, 16, 11, 9, 11, 10, 18]}
ARRAYS = {name: np.asarray(value) for name, value in SCHOOLS.items()}


def read(*paths: Path, **options: Any) -> Dataset:
    records = paths[0].parent / "records"
    records.mkdir()
    source = Source(Options.model_validate({"files": [str(path) for path in paths], **options}))
    source.fetch(records)
    return source.read(records)


def write_npz(path: Path, values: dict[str, np.ndarray]) -> None:
    np.savez(path, **values)


def write_json(path: Path, values: dict[str, np.ndarray]) -> None:
    path.write_text(json.dumps({name: value.tolist() for name, value in values.items()}))


def write_hdf5(path: Path, values: dict[str, np.ndarray]) -> None:
    with h5py.File(path, "w") as file:
        for name, value in values.items():
            file[name] = value


def write_zarr(path: Path, values: dict[str, np.ndarray]) -> None:
    group = zarr.open_group(str(path), mode="w")
    for name, value in values.items():
        group.create_array(name, data=value)


def write_netcdf(path: Path, values: dict[str, np.ndarray]) -> None:
    with netcdf_file(str(path), "w") as file:
        file.createDimension("school", 8)
        for name, value in values.items():
            variable = file.createVariable(
                name, "f8" if value.dtype.kind == "f" else "i4", ("school",) if value.shape else ()
            )
            variable[...] = value


WRITERS: dict[str, Callable[[Path, dict[str, np.ndarray]], None]] = {
    "npz": write_npz, "json": write_json, "h5": write_hdf5, "zarr": write_zarr, "nc": write_netcdf,
}  # fmt: skip


@pytest.mark.parametrize("ending", WRITERS)
def test_every_format_gives_the_same_data(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"schools.{ending}"
    WRITERS[ending](path, ARRAYS)
    dataset = read(path)
    assert dataset.constants == {"J": 8}
    assert set(dataset.rows) == {"y", "sigma"}
    assert dataset.rows["y"][:].tolist() == SCHOOLS["y"]
    assert dataset.rows["y"].dtype.kind == "i"
    assert dataset.rows["sigma"][2:4].tolist() == [16, 11]
    assert dataset.declared_counts == {"rows": 8}


def test_rows_of_several_files_follow_each_other(tmp_path: Path) -> None:
    for number in range(3):
        np.savez(tmp_path / f"part-{number}.npz", x=np.arange(5) + 10 * number, n=np.int64(3))
    dataset = read(tmp_path / "part-*.npz")
    assert dataset.rows["x"][:].tolist() == [*range(5), *range(10, 15), *range(20, 25)]
    assert dataset.constants == {"n": 3}


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("x.json", b'{"y": [1, 2', {}, "x.json: not a whole file of the format json"),
        ("x.json", b"[1, 2]", {}, "x.json: .* not an object"),
        ("x.json", b'{"y": [1, NaN]}', {}, "x.json: .* NaN is not a number"),
        ("x.json", b'{"y": [1, 2], "N": 2, "y": [3, 4]}', {}, "x.json: .*'y' stands there twice"),
        ("x.json", b'{"y": [[1, 2], [3]]}', {}, "x.json: .*'y': lists of unequal lengths"),
        ("x.json", b'{"y": ["a"]}', {}, "x.json: .*'y': holds something else than numbers"),
        ("x.json", b'{"y": [1, 2], "x": [1, 2, 3]}', {}, "x.json: the first axes .* unequal lengths: y 2, x 3"),
        ("x.json", b'{"y": []}', {}, r"x.json: '?y'? .*holds nothing"),
        ("x.json", b'{"N": 3}', {}, "x.json: no array has rows"),
        ("x.json", b'{"y": [1]}', {"arrays": {"y": "Y"}}, "x.json: no array 'Y'"),
        ("x.npz", b"PK nothing", {}, "x.npz: not a whole file of the format npz"),
        ("x.h5", b"nothing", {}, "x.h5: not a whole file of the format hdf5"),
        ("x.nc", b"CDF", {}, "x.nc: not a whole file of the format netcdf"),
        ("x.rds", b"nothing", {}, "x.rds: the format of the file is not known"),
        ("x.zarr", b"nothing", {}, "x.zarr: not a whole file of the format zarr"),
    ],
)
def test_refusals_name_the_file(
    tmp_path: Path, name: str, content: bytes, options: dict[str, Any], message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path / name, **options)
    assert caught.value.remedy


def test_pickles_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], object))
    with pytest.raises(DataError, match=r"x\.npz: not a whole file of the format npz: .*pickled Python objects"):
        read(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"y": np.zeros(2)}, "two.npz: has other arrays than .*one.npz: x"),
        ({"x": np.zeros((2, 3))}, r"two.npz: 'x' has rows of shape \(3,\)"),
        ({"x": np.zeros(2, int)}, "two.npz: 'x' has rows of shape .* and dtype int64"),
        ({"x": np.zeros(2), "n": np.int64(4)}, "two.npz: constant 'n' differs"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, other: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "one.npz", x=np.zeros(2), **({"n": np.int64(3)} if "n" in other else {}))
    np.savez(tmp_path / "two.npz", **other)
    with pytest.raises(DataError, match=message):
        read(tmp_path / "one.npz", tmp_path / "two.npz")
