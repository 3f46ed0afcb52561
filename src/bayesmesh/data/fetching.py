"""Fetch the files of a source atomically, from a local mirror (``BAYESMESH_MIRROR``) or from the network, and reject wrong ones."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.data.base import Source
from bayesmesh.errors import DataError
from bayesmesh.files import atomic_folder, hash_file
from bayesmesh.store.hashes import folder_digest
from bayesmesh.store.layout import DataLayout
from bayesmesh.store.records.checked import write_checked
from bayesmesh.store.records.files import MIRROR_VARIABLE

PROBE_LIMIT_S = 6.0
"""Time limit of `probe` in seconds, including name resolution and proxies; it leaves time to start within 10."""

MOST_EXPANSION = 200
"""Largest ratio of the size of large contents to that of their file; zeros reach about 1000."""

LEAST_BYTES = 2**30
"""Size of arrays below which their expansion is not checked."""

LEAST_TEXT = 2**26
"""The same for texts, of which all bytes are parsed."""

MOST_PIECE = 2**29
"""Largest number of bytes that can only be read together, such as a chunk."""

_NO_FILES: Mapping[str, Path] = {}


class RegisteredFile(NamedTuple):
    """A file in its publisher's list of checksums; `size` in bytes, `sha256` in hexadecimal."""

    url: str
    name: str
    size: int
    sha256: str


def mirror_folder() -> Path | None:
    """Return the folder that ``BAYESMESH_MIRROR`` names, or None if it is not set.

    Raises:
        DataError: the folder does not exist.
    """
    value = os.environ.get(MIRROR_VARIABLE, "")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"{MIRROR_VARIABLE}={value}: no such folder", f"correct it, or `unset {MIRROR_VARIABLE}`")
    return folder


def verify_file(path: Path, registered: RegisteredFile) -> None:
    """Compare a local file with its registered size and sha256.

    Raises:
        DataError: the file is missing, shorter or longer than registered, or has the right size but different bytes.
    """
    remedy = f"get {registered.url} again and put it at {path}"
    if not path.is_file():
        raise DataError(f"{path}: missing, expected {registered.size} bytes", remedy)
    size = path.stat().st_size
    if size != registered.size:
        kind = "truncated" if size < registered.size else "too long"
        raise DataError(f"{path}: {kind}: expected {registered.size} bytes, found {size}", remedy)
    found = hash_file(path)
    if found != registered.sha256:
        raise DataError(f"{path}: damaged: expected sha256 {registered.sha256}, found {found}", remedy)


def check_size(path: Path, what: str, num_bytes: int, stored: int, piece: int = 0, least: int = LEAST_BYTES) -> None:
    """Reject contents that expand as no measurements do, or that must be read in too large pieces.

    Args:
        path: the file.
        what: its part, for the message.
        num_bytes: size of the contents, as declared or as read so far.
        stored: number of bytes of the file in which they are stored.
        piece: size of the largest part that must be read at once.
        least: size below which contents may expand.

    Raises:
        DataError: names the file and the part.
    """
    if num_bytes > least and num_bytes > MOST_EXPANSION * stored:
        raise DataError(
            f"{path}: {what} would expand from {stored:,} bytes to {num_bytes:,} or more",
            "if these are data, store them without compression",
        )
    if piece > MOST_PIECE:
        raise DataError(
            f"{path}: {what} must be read in pieces of {piece:,} bytes", "store it in chunks of a few megabytes"
        )


def probe(url: str, limit_s: float = PROBE_LIMIT_S) -> str:
    """Request the first byte of `url`, through the proxies set in the environment.

    Returns:
        The reason for failure, or an empty string on success.
    """
    outcome: list[str] = []
    # A daemon thread, because name resolution has no time limit and must not delay the exit.
    thread = threading.Thread(target=lambda: outcome.append(_request(url, limit_s / 2)), daemon=True)
    thread.start()
    thread.join(limit_s)
    return outcome[0] if outcome else f"no answer within {limit_s:g} s"


def _request(url: str, timeout_s: float) -> str:
    import requests

    try:
        with requests.get(url, stream=True, timeout=timeout_s) as response:
            return "" if response.status_code == requests.codes.ok else f"HTTP status {response.status_code}"
    except requests.RequestException as error:
        cause = str(error)
        return f"{type(error).__name__}: {cause if len(cause) < 300 else cause[:300] + ' ...'}"


def fetch(
    source: Source,
    source_config: Mapping[str, object],
    layout: DataLayout,
    read_in_place: Mapping[str, Path] = _NO_FILES,
) -> dict[str, Any]:
    """Run ``source.fetch`` into a temporary folder, move it to ``layout.records``, then write ``layout.fetched``.

    Files of an earlier fetch are kept until the new ones are complete.

    Args:
        source: the source, constructed with its options.
        source_config: its name and options as plain values, for the manifest.
        layout: paths of the dataset.
        read_in_place: name -> user's file that the source may read in place.

    Returns:
        The manifest: name and options of the source, the origin of its files, and digests of the stored files and of the
            user's files. Different content gives a different manifest, so that shards of the former content are out of
            date.

    Raises:
        DataError: raised by the source.
    """
    with atomic_folder(layout.records) as partial:
        origin = source.fetch(partial)
        records = folder_digest(partial)
    manifest: dict[str, Any] = {
        "source": dict(source_config),
        "options": source.options.model_dump(mode="json"),
        "origin": dict(origin),
        "records": records,
        "files": {name: hash_file(path) for name, path in read_in_place.items()},
    }
    write_checked(layout.fetched, manifest)
    return manifest
