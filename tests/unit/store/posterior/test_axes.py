"""Dimensions and coordinates of the posterior, as xarray reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

from bayesmesh.store.arrays import create_array, open_group
from bayesmesh.store.posterior.axes import GroupCoordinates, NamedAxes, read_labels

SITES = ("Bönn", "Aachen")
SHAPES = {"effects": (2, 3), "sd": (3,), "mean": (), "site": (2,)}
AXES = {"effects": [("place", SITES), ("effect", None)], "sd": [("effect", None)], "site": [("site", SITES)]}


@pytest.fixture
def group(tmp_path: Path) -> zarr.Group:
    return write(tmp_path / "p.zarr", AXES)


def write(path: Path, axes: NamedAxes) -> zarr.Group:
    group = open_group(path, "w")
    made = GroupCoordinates(axes, SHAPES)
    for name, shape in SHAPES.items():
        array = create_array(group, name, (4, 5, *shape), "float32", ("chain", "draw", *made.dims(name, shape)))
        array[...] = 0.0
    made.write(group)
    return group


def test_every_dimension_has_a_coordinate_and_names_select(group: zarr.Group, tmp_path: Path) -> None:
    found = xr.open_zarr(tmp_path / "p.zarr", consolidated=False)
    assert found["effects"].dims == ("chain", "draw", "place", "effect")
    assert set(found.dims) == set(found.coords)
    assert found["effects"].sel(place="Bönn").shape == (4, 5, 3)
    assert found["place"].values.tolist() == list(SITES)
    np.testing.assert_array_equal(found["effect"], np.arange(3))
    assert read_labels(group, group["effects"]) == [list(SITES), None]  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [("place", ("a", "b", "c")), ("place", None), ("mean", ("a", "b", "c"))])
def test_another_axis_of_the_same_name_keeps_its_own(tmp_path: Path, other: tuple[str, tuple[str, ...] | None]) -> None:
    group = write(tmp_path / "p.zarr", {**AXES, "sd": [other]})
    assert read_labels(group, group["sd"]) == [None if other[1] is None else list(other[1])]  # type: ignore[arg-type]
    assert xr.open_zarr(tmp_path / "p.zarr", consolidated=False)["sd"].dims[2:] == ("sd_dim_0",)
