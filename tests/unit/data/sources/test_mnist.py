"""MNIST: file checks without the data, facts with it."""

from __future__ import annotations

import gzip
import io
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import RegisteredFile, fetch
from bayesmesh.data.sources import _tfds, mnist
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout


@pytest.fixture
def source() -> mnist.Source:
    return mnist.Source(mnist.Options())


@pytest.fixture
def copied_mirror(mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable copy of the real files."""
    folder = tmp_path / "mirror" / "mnist"
    folder.mkdir(parents=True)
    for path in (mirror / "mnist").glob("*.gz"):
        shutil.copyfile(path, folder / path.name)
    monkeypatch.setenv("BAYESMESH_MIRROR", str(folder.parent))
    return folder


def test_png_comes_back() -> None:
    image = np.random.default_rng(0).integers(0, 256, (28, 20), np.uint8)
    with PIL.Image.open(io.BytesIO(mnist.encode_png(image))) as found:
        found.load()
        np.testing.assert_array_equal(np.asarray(found), image)
    np.testing.assert_array_equal(mnist.decode_png(mnist.encode_png(image)), image)


def test_idx_comes_back(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + values.tobytes()))
    np.testing.assert_array_equal(mnist.read_idx(path), values)


@pytest.mark.parametrize(
    "content",
    [
        b"plain",
        gzip.compress(b"abcdefgh"),
        gzip.compress(struct.pack(">HBBI", 0, 8, 1, 5) + b"1234"),
        gzip.compress(b"x" * 99)[:-9],
    ],
    ids=["not gzip", "no idx", "too short", "truncated"],
)
def test_damaged_idx_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.gz"):
        mnist.read_idx(path)


@pytest.mark.real_data
def test_flipped_bit_is_named(source: mnist.Source, layout: DataLayout, copied_mirror: Path) -> None:
    path = copied_mirror / "t10k-labels-idx1-ubyte.gz"
    content = bytearray(path.read_bytes())
    content[2000] ^= 4
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=rf"{path}: damaged: expected sha256 f7ae60f9"):
        fetch(source, {}, layout)
    assert not layout.fetched.exists()


@pytest.mark.real_data
def test_order_and_values_are_those_of_the_published_files(mnist_dataset: Dataset, mirror: Path) -> None:
    for rows, part in ((mnist_dataset.rows, "train"), (mnist_dataset.test_rows, "t10k")):
        images = mnist.read_idx(mirror / "mnist" / f"{part}-images-idx3-ubyte.gz")
        np.testing.assert_array_equal(rows["features"], images.reshape(-1, 784))
        np.testing.assert_array_equal(rows["label"], mnist.read_idx(mirror / "mnist" / f"{part}-labels-idx1-ubyte.gz"))


@pytest.mark.real_data
def test_from_the_network_each_file_is_downloaded_once(
    source: mnist.Source, layout: DataLayout, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def serve(files: Mapping[str, RegisteredFile], folder: Path) -> dict[str, Path]:
        asked.extend(files)
        return {name: mirror / "mnist" / name for name in files}

    read_idx = mnist.read_idx
    monkeypatch.delenv("BAYESMESH_MIRROR")
    monkeypatch.setattr(_tfds, "probe", lambda url: "")
    monkeypatch.setattr(_tfds, "download", serve)
    monkeypatch.setattr(mnist, "read_idx", lambda path: read_idx(path)[:50])
    manifest = fetch(source, {}, layout)
    assert sorted(asked) == sorted(mnist.FILES)
    assert manifest["origin"]["origin"] == "network"
    assert len(source.read(layout.records).test_rows["label"]) == 50
