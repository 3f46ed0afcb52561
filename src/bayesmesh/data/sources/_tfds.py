"""Use TensorFlow Datasets without TensorFlow: registered checksums, bounded downloads, array_record files.

TFDS 4.9.10 imports TensorFlow only where it extracts archives, encodes arrays as images or makes a ``tf.data.Dataset``.
This module does none of these. Records are read raw and parsed with the protocol buffer that TFDS ships: the 70,000
images of MNIST in a few seconds.
"""

from __future__ import annotations

import contextlib
import http.client
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesmesh.data.fetching import MIRROR_VARIABLE, RegisteredFile, probe, verify_file
from bayesmesh.errors import DataError
from bayesmesh.files import atomic_path

TIMEOUT_S = 30.0
"""Seconds without any data after which a download is tried again."""

NUM_RETRIES = 2
BATCH_RECORDS = 2048


def registered_files(dataset: str, names: list[str]) -> dict[str, RegisteredFile]:
    """Return size and sha256 of files as TFDS registers them for a dataset, by file name.

    Raises:
        DataError: the installed TFDS does not know a file.
    """
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import checksums

    path = Path(tfds.__file__).parent / "url_checksums" / f"{dataset}.txt"
    known = {
        info.filename: RegisteredFile(url, info.filename, int(info.size), info.checksum)
        for url, info in checksums.load_url_infos(path).items()
        if info.filename
    }
    if unknown := [name for name in names if name not in known]:
        raise DataError(f"{path}: no checksum of {unknown[0]}", "install tensorflow-datasets==4.9.10, as in the lock")
    return {name: known[name] for name in names}


def require_network(url: str, needed: str) -> None:
    """Return if `url` is reachable; otherwise fail within seconds.

    Args:
        url: the first download.
        needed: a sentence naming the files that a mirror needs.

    Raises:
        DataError: it is not reachable; the message gives a command that needs no network.
    """
    reason = probe(url)
    if reason:
        raise DataError(
            f"{url} cannot be reached: {reason}",
            f"on a machine with network get the files, then run with `{MIRROR_VARIABLE}=DIR make ...`, where {needed}",
        )


def download(files: Mapping[str, RegisteredFile], folder: Path) -> dict[str, Path]:
    """Download files, and check the size and sha256 of each.

    Returns:
        File name -> path in `folder`.

    Raises:
        DataError: a file cannot be downloaded, stalls for 30 seconds, or differs from the registered one.
    """
    for name, file in files.items():
        for left in reversed(range(1 + NUM_RETRIES)):
            try:
                opened = urllib.request.urlopen(file.url, timeout=TIMEOUT_S)  # noqa: S310 - registered by TFDS
                with opened as answer, atomic_path(folder / name) as path:
                    # One byte more than registered shows that a file is too long.
                    path.write_bytes(answer.read(file.size + 1))
                break
            except (OSError, http.client.HTTPException) as error:
                if not left:
                    raise DataError(
                        f"download of {file.url} failed: {error}",
                        f"run it again, or get the file by hand and set {MIRROR_VARIABLE}",
                        may_pass=True,
                    ) from error
        verify_file(folder / name, file)
    return {name: folder / name for name in files}


def write_records(
    folder: Path,
    dataset: str,
    version: str,
    splits: Mapping[str, Iterable[Mapping[str, object]]],
    features: Mapping[str, Any],
    *,
    config: str = "",
    **about: object,
) -> None:
    """Let TFDS write examples as array_record files, in their order, in ``folder/dataset/[config/]version``.

    Args:
        folder: folder of all data sets.
        dataset: name of the data set.
        version: its version.
        splits: name of a split -> its examples.
        features: name of a feature -> its type, as TFDS takes it.
        config: name of a configuration with other features.
        about: further arguments of ``tfds.core.DatasetInfo``, such as the home page.

    Raises:
        DataError: there are fewer or more records on disk than the builder counted.
    """
    import tensorflow_datasets as tfds

    tfds.disable_progress_bar()
    with tfds.core.registered.skip_registration():

        class Written(tfds.core.GeneratorBasedBuilder):
            name = dataset
            VERSION = tfds.core.Version(version)
            BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=config)] if config else []

            def _info(self) -> object:
                described = tfds.features.FeaturesDict(features)
                # Without shuffling, row numbers are those of the source.
                return tfds.core.DatasetInfo(builder=self, features=described, disable_shuffling=True, **about)

            def _split_generators(self, dl_manager: object) -> dict[str, Iterable[tuple[int, object]]]:
                del dl_manager
                return {split: enumerate(examples) for split, examples in splits.items()}

            def _generate_examples(self) -> None:
                """Abstract in TFDS, which calls it only from `_split_generators`."""

    builder = Written(data_dir=folder, config=config or None, file_format="array_record")
    with contextlib.redirect_stdout(sys.stderr):
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(try_download_gcs=False))
    for split, info in builder.info.splits.items():
        found = sum(1 for _ in _raw_records(Path(builder.data_dir), split))
        if found != info.num_examples:
            raise DataError(f"{builder.data_dir}: split {split}: expected {info.num_examples} records, found {found}")


def _raw_records(folder: Path, split: str) -> Iterator[bytes]:
    from array_record.python.array_record_module import ArrayRecordReader

    paths = sorted(folder.glob(f"*-{split}.array_record*"))
    if not paths:
        raise DataError(f"{folder}: no array_record file of split {split}", "run the fetch stage again")
    for path in paths:
        try:
            reader = ArrayRecordReader(str(path))
            try:
                total = reader.num_records()
                for start in range(0, total, BATCH_RECORDS):
                    yield from reader.read(start, min(start + BATCH_RECORDS, total))
            finally:
                reader.close()
        except (RuntimeError, ValueError, IndexError) as error:
            raise DataError(f"{path}: damaged: {error}", "remove it and run the fetch stage again") from error


def read_records(folder: Path, split: str) -> Iterator[Mapping[str, Any]]:
    """Yield the feature maps of a prepared split, in the order in which they were written.

    Each value is a ``Feature`` message of TFDS; take ``.bytes_list.value`` or ``.int64_list.value`` of it. The message is
    reused for the next record: copy values that you keep.

    Raises:
        DataError: a file is missing, damaged, or contains anything but examples.
    """
    from google.protobuf.message import DecodeError
    from tensorflow_datasets.proto import tf_example_generated_pb2

    example = tf_example_generated_pb2.Example()
    for number, record in enumerate(_raw_records(folder, split)):
        try:
            example.ParseFromString(record)
        except DecodeError as error:
            raise DataError(f"{folder}: split {split}: record {number} is not an example", "run fetch again") from error
        yield example.features.feature
