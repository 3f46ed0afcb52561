"""MNIST, 70,000 handwritten digits of 28 x 28 pixels, prepared by TensorFlow Datasets as array_record.

The four files come from ``BAYESMESH_MIRROR/mnist`` or from the network. Name, version, folder and features of the data
set are those of TFDS. Three things differ from its own preparation: archives are opened and images encoded without
TensorFlow, compression is left to array_record, and nothing is shuffled, so that row numbers are image numbers in the
published files.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from bayesmesh.data import base
from bayesmesh.data.base import Dataset
from bayesmesh.data.fetching import mirror_folder, verify_file
from bayesmesh.data.sources import _tfds
from bayesmesh.data.sources.options import MnistOptions as Options
from bayesmesh.errors import DataError

VERSION = "3.0.1"
PARTS = {"train": "train", "test": "t10k"}
COUNTS = {"train": 60000, "test": 10000}
FILES = [f"{part}-{what}-ubyte.gz" for part in PARTS.values() for what in ("images-idx3", "labels-idx1")]
NEEDED = "DIR/mnist holds " + ", ".join(FILES) + " from https://storage.googleapis.com/cvdf-datasets/mnist/"


def read_idx(path: Path) -> np.ndarray:
    """Decode a gzipped IDX file of unsigned bytes.

    Returns:
        Array of the shape in the file's header, uint8.

    Raises:
        DataError: the file is not gzip, not IDX of bytes, or shorter than its header states.
    """
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not a whole gzip file: {error}") from error
    # Magic number: two zero bytes, 0x08 for unsigned bytes, the number of axes.
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(f"{path}: not an IDX file of unsigned bytes")
    axes = content[3]
    shape = tuple(int(n) for n in np.frombuffer(content, ">u4", count=axes, offset=4))
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes)
    if values.size != np.prod(shape):
        raise DataError(f"{path}: header says {shape}, found {values.size} bytes")
    return values.reshape(shape)


_HEADER = b"\x89PNG\r\n\x1a\n"


def encode_png(image: np.ndarray) -> bytes:
    """Return a greyscale image, (height, width) uint8, as the bytes of a PNG file.

    It uses no row filter, and leaves compression to array_record, which is many times faster than a general encoder.
    """
    height, width = image.shape
    filtered = np.zeros((height, width + 1), np.uint8)  # a leading 0 in each row: filter "none"
    filtered[:, 1:] = image
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0),
        b"IDAT": zlib.compress(filtered, 0),
        b"IEND": b"",
    }
    return _HEADER + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks.items()
    )


def decode_png(content: bytes) -> np.ndarray:
    """Return the image of a PNG file that `encode_png` wrote, (height, width) uint8.

    Raises:
        ValueError: it is not such a file, is truncated, or has a wrong checksum.
    """
    try:
        width, height, *form, length = struct.unpack_from(">II5B4xI", content, 16)
        pixels = zlib.decompress(content[41 : 41 + length])
    except (struct.error, zlib.error) as error:
        raise ValueError(f"not a whole image: {error}") from error
    rows = np.frombuffer(pixels, np.uint8).reshape(height, -1)
    if content[:8] != _HEADER or form != [8, 0, 0, 0, 0] or rows.shape[1] != width + 1 or rows[:, 0].any():
        raise ValueError("not an image as fetch writes it")
    return rows[:, 1:]


class Source(base.Source):
    """Fields ``features`` (rows, 784) uint8, 0 to 255, and ``label`` (rows,) uint8; in the published order."""

    pretty_name = "MNIST"
    mirror_files = ("mnist/*-ubyte.gz",)
    offers = ("averaging",)
    image_shape = (28, 28)
    options: Options

    def fetch(self, folder: Path) -> dict[str, object]:
        """Verify the four files, then let TFDS write array_record files in `folder`.

        Raises:
            DataError: there is neither mirror nor network (raised within 10 seconds), or a file is missing or damaged.
        """
        import tensorflow_datasets as tfds

        files, mirror = _tfds.registered_files("mnist", FILES), mirror_folder()
        if mirror:
            paths = {name: mirror.resolve() / "mnist" / name for name in FILES}
            for name, file in files.items():
                verify_file(paths[name], file)
        else:
            _tfds.require_network(files[FILES[0]].url, NEEDED)
            paths = _tfds.download(files, folder / "downloads")
        features = {
            "image": tfds.features.Image(shape=(28, 28, 1)),
            "label": tfds.features.ClassLabel(num_classes=10),
        }
        splits = {split: _examples(paths, part) for split, part in PARTS.items()}
        _tfds.write_records(folder, "mnist", VERSION, splits, features, supervised_keys=("image", "label"))
        return {
            "origin": str(mirror.resolve() / "mnist") if mirror else "network",
            "files": {f.name: {"url": f.url, "bytes": f.size, "sha256": f.sha256} for f in files.values()},
            "sha256_registered_by": f"tensorflow-datasets {tfds.__version__}",
            "order": "as published: disable_shuffling",
        }

    def read(self, folder: Path) -> Dataset:
        """Decode the array_record files, 70,000 PNG images.

        Raises:
            DataError: a file is missing or damaged, or an image has the wrong size.
        """
        parts = {split: _decode(folder, split) for split in PARTS}
        return Dataset(
            rows=parts["train"],
            test_rows=parts["test"],
            constants={"num_classes": 10, "feature_scale": 255},
            declared_counts={"rows": COUNTS["train"], "test_rows": COUNTS["test"]},
        )


def _examples(paths: Mapping[str, Path], part: str) -> Iterator[dict[str, object]]:
    images, labels = (read_idx(paths[f"{part}-{what}-ubyte.gz"]) for what in ("images-idx3", "labels-idx1"))
    for image, label in zip(images, labels, strict=True):
        yield {"image": encode_png(image), "label": int(label)}


def _decode(folder: Path, split: str) -> dict[str, np.ndarray]:
    prepared = folder / "mnist" / VERSION
    images: list[np.ndarray] = []
    labels: list[int] = []
    for number, features in enumerate(_tfds.read_records(prepared, split)):
        where = f"{prepared}: split {split}: record {number}"
        try:
            pixels = decode_png(features["image"].bytes_list.value[0])
        except ValueError as error:
            raise DataError(f"{where}: {error}", "run fetch again") from error
        if pixels.shape != (28, 28):
            raise DataError(f"{where}: image {pixels.shape}")
        images.append(pixels.reshape(784))
        labels.append(features["label"].int64_list.value[0])
    return {"features": np.stack(images), "label": np.asarray(labels, np.uint8)}
