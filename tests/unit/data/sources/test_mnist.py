"""MNIST: file checks without the data, facts with it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import PIL.Image
import pytest

from bayesmesh.data.base import Dataset
from bayesmesh.data.data_sharding import check_counts
from bayesmesh.data.fetching import fetch
from bayesmesh.data.sources import _tfds_source, mnist
from bayesmesh.errors import DataError
from bayesmesh.store.layout import DataLayout

TEST_LABELS = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


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


def test_an_image_compressed_by_former_versions_is_still_read() -> None:
    image = np.add.outer(np.arange(28, dtype=np.uint8), np.arange(28, dtype=np.uint8))
    content = mnist.encode_png(image)
    pixels = zlib.compress(zlib.decompress(content[41:-16]), 1)
    former = content[:33] + struct.pack(">I", len(pixels)) + b"IDAT" + pixels
    former += struct.pack(">I", zlib.crc32(b"IDAT" + pixels)) + content[-12:]
    assert len(former) < len(content) / 2
    np.testing.assert_array_equal(mnist.decode_png(former), image)


def _png_of_another_program(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    PIL.Image.fromarray(image).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:20], "not a whole image"),
        (lambda content: content[:60], "not a whole image"),
        (lambda content: content[:70] + b"?" + content[71:], "not a whole image"),
        (lambda content: b"JPEG" + content[4:], "not an image as fetch writes it"),
        (
            lambda content: _png_of_another_program(np.stack([mnist.decode_png(content)] * 3, -1)),
            "not an image as fetch writes it",
        ),
        (lambda content: _png_of_another_program(mnist.decode_png(content)), "not an image as fetch writes it"),
    ],
    ids=["header cut off", "cut off", "flipped", "no png", "colours", "row filters"],
)
def test_an_image_that_fetch_did_not_write_is_refused(damage: Callable[[bytes], bytes], message: str) -> None:
    image = np.add.outer(np.arange(28, dtype=np.uint8), np.arange(28, dtype=np.uint8))
    with pytest.raises(ValueError, match=message):
        mnist.decode_png(damage(mnist.encode_png(image)))


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


@pytest.mark.usefixtures("offline")
def test_neither_mirror_nor_network_ends_quickly(source: mnist.Source, layout: DataLayout) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match="cannot be reached") as caught:
        fetch(source, {"name": "mnist"}, layout)
    assert time.monotonic() - start < 10
    assert "BAYESMESH_MIRROR=DIR make" in caught.value.remedy
    assert "DIR/mnist holds train-images-idx3-ubyte.gz" in caught.value.remedy
    assert not layout.fetched.exists()


def test_mirror_without_the_files_names_the_first(
    source: mnist.Source, layout: DataLayout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYESMESH_MIRROR", str(tmp_path))
    with pytest.raises(DataError, match=r"mnist/train-images-idx3-ubyte\.gz: missing"):
        fetch(source, {}, layout)


def test_reading_what_was_not_fetched_is_an_error(source: mnist.Source, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"mnist/3\.0\.1: no array_record file of split train"):
        source.read(tmp_path)


@pytest.mark.real_data
def test_truncated_file_is_named(source: mnist.Source, layout: DataLayout, copied_mirror: Path) -> None:
    path = copied_mirror / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=rf"{path}: truncated: expected 1648877 bytes, found 1648777"):
        fetch(source, {}, layout)


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
def test_facts(mnist_dataset: Dataset) -> None:
    assert check_counts(mnist_dataset) == {"rows": 60000, "test_rows": 10000}
    assert mnist_dataset.rows["features"].shape == (60000, 784)
    assert mnist_dataset.test_rows["features"].dtype == np.uint8
    assert np.bincount(mnist_dataset.test_rows["label"]).tolist() == TEST_LABELS
    assert "tensorflow" not in sys.modules


@pytest.mark.real_data
def test_order_and_values_are_those_of_the_published_files(mnist_dataset: Dataset, mirror: Path) -> None:
    for rows, part in ((mnist_dataset.rows, "train"), (mnist_dataset.test_rows, "t10k")):
        images = mnist.read_idx(mirror / "mnist" / f"{part}-images-idx3-ubyte.gz")
        np.testing.assert_array_equal(rows["features"], images.reshape(-1, 784))
        np.testing.assert_array_equal(rows["label"], mnist.read_idx(mirror / "mnist" / f"{part}-labels-idx1-ubyte.gz"))


@pytest.mark.real_data
def test_manifest_records_the_sums(mnist_layout: DataLayout) -> None:
    origin = json.loads(mnist_layout.fetched.read_text())["origin"]
    assert origin["files"]["t10k-labels-idx1-ubyte.gz"]["sha256"].startswith("f7ae60f9")
    assert set(origin["files"]) == set(mnist.FILES)


@pytest.mark.real_data
def test_tfds_itself_reads_the_prepared_folder(mnist_layout: DataLayout, mnist_dataset: Dataset) -> None:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(mnist_layout.records / "mnist" / "3.0.1")
    assert builder.info.full_name == "mnist/3.0.1"
    found = builder.as_data_source(split="test")
    assert len(found) == 10000
    np.testing.assert_array_equal(found[7]["image"].reshape(784), mnist_dataset.test_rows["features"][7])
    assert found[7]["label"] == mnist_dataset.test_rows["label"][7]


@pytest.mark.real_data
def test_from_the_network_each_file_is_downloaded_once(
    source: mnist.Source, layout: DataLayout, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorflow_datasets.core.download import downloader

    asked: list[str] = []

    @contextlib.contextmanager
    def serve(url: str, **options: Any) -> Iterator[tuple[SimpleNamespace, list[bytes]]]:
        assert options["timeout"], "TFDS sets no time limit of its own"
        asked.append(url.rpartition("/")[2])
        yield SimpleNamespace(url=url, headers={}), [(mirror / "mnist" / asked[-1]).read_bytes()]

    read_idx = mnist.read_idx
    monkeypatch.delenv("BAYESMESH_MIRROR")
    monkeypatch.setattr(_tfds_source, "probe", lambda url: "")
    monkeypatch.setattr(downloader, "_open_url", serve)
    monkeypatch.setattr(mnist, "read_idx", lambda path: read_idx(path)[:50])
    manifest = fetch(source, {}, layout)
    assert sorted(asked) == sorted(mnist.FILES)
    assert manifest["origin"]["origin"] == "network"
    assert len(source.read(layout.records).test_rows["label"]) == 50


@pytest.mark.real_data
def test_damaged_record_is_an_error(mnist_layout: DataLayout, source: mnist.Source, tmp_path: Path) -> None:
    folder = tmp_path / "records"
    shutil.copytree(mnist_layout.records, folder)
    path = next((folder / "mnist" / "3.0.1").glob("mnist-train.array_record*"))
    content = bytearray(path.read_bytes())
    content[200_000] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"mnist-train\.array_record.*damaged"):
        source.read(folder)
