"""Weights as images: the right pixel has the right colour, and noise stays empty."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.weights import ABOVE, BELOW, WeightImages, draw_units, draw_weights
from bayesmesh.store.arrays import open_group, write_array

NAMES = ("one", "two", "three")


def made(
    tmp_path: Path, shape: tuple[int, ...], *, is_summary: bool = False, one_draw: float | None = None
) -> WeightImages | None:
    """Weights of six pixels and three classes: the second pixel speaks for the first class; a shift of all means nothing."""
    rng = np.random.default_rng(5)
    draws = 0.1 * rng.normal(size=(2, 400, 6, 3)) + rng.normal(size=(2, 400, 6, 1))
    draws[:, :, 1, 0] += 3
    if one_draw is not None:
        draws[0, 0, 4, 2] = one_draw
    path = tmp_path / "posterior.zarr"
    group = open_group(path, "w").create_group("posterior")
    write_array(group, "weights", draws, ("chain", "draw", "feature", "class"))
    items = [
        Coordinate(
            "weights", (n, k), 0.0, 1.0, -1.6, 1.6, 0.1, 1.0, 900.0, 900.0, is_summary=is_summary, names=f"{n},{name}"
        )
        for n in range(6)
        for k, name in enumerate(NAMES)
    ]
    return draw_weights(DrawReader(path), items, shape)


def pixels_of(found: WeightImages) -> list[np.ndarray]:
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))) for _, address in found.images
    ]


def test_pixels_speak_for_and_against_a_class(tmp_path: Path) -> None:
    found = made(tmp_path, (2, 3))
    assert found is not None
    assert [name for name, _ in found.images] == list(NAMES)
    assert found.largest == pytest.approx(2.0, abs=0.02)
    pixels = pixels_of(found)
    assert pixels[0].shape == (2, 3, 4)
    assert (tuple(pixels[0][0, 1, :3]), pixels[0][0, 1, 3]) == (ABOVE, 255)
    assert [tuple(image[0, 1, :3]) for image in pixels[1:]] == [BELOW, BELOW]
    assert found.share == pytest.approx(3 / 18)
    assert all((np.delete(image[..., 3].ravel(), 1) == 0).all() for image in pixels), "noise is empty"


def test_hidden_units_are_those_of_one_draw_the_largest_first(tmp_path: Path) -> None:
    draws = np.zeros((2, 3, 6, 4))
    draws[0, 2, 1, 3], draws[0, 2, 4, 0] = 2.0, -1.0
    draws[1], draws[0, :2] = 9.0, 9.0
    group = open_group(tmp_path / "posterior.zarr", "w").create_group("posterior")
    write_array(group, "weights_0", draws, ("chain", "draw", "input", "unit"))
    reader = DrawReader(tmp_path / "posterior.zarr")
    found = draw_units(reader, "weights_0", (2, 3))
    assert found is not None
    assert [name for name, _ in found.images] == ["3", "0", "1", "2"]
    assert found.largest == 2.0
    first, second = pixels_of(found)[:2]
    assert first[0, 1].tolist() == [*ABOVE, 255]
    assert second[1, 1, :3].tolist() == list(BELOW)
    assert first[..., 3].sum() == 255
    assert draw_units(reader, "weights_0", (3, 3)) is None
    assert draw_units(reader, "", (2, 3)) is None
