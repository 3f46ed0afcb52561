"""TFDS without TensorFlow: registered sums, downloads with limits, raw records."""

from __future__ import annotations

import functools
import hashlib
import http.server
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.data.fetching import RegisteredFile
from bayesmesh.data.sources import _tfds
from bayesmesh.errors import DataError

CONTENT = b"payload" * 1000


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        del format, args


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web server on this machine with the file ``file.bin``."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    (served / "file.bin").write_bytes(CONTENT)
    handler = functools.partial(QuietHandler, directory=str(served))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def registered(url: str, content: bytes = CONTENT) -> dict[str, RegisteredFile]:
    return {"file.bin": RegisteredFile(url, "file.bin", len(content), hashlib.sha256(content).hexdigest())}


def test_download_verifies_what_it_brings(address: str, tmp_path: Path) -> None:
    found = _tfds.download(registered(f"{address}/file.bin"), tmp_path / "downloads")
    assert found["file.bin"].read_bytes() == CONTENT


def test_a_file_that_is_not_the_registered_one_is_rejected(address: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"file\.bin"):
        _tfds.download(registered(f"{address}/file.bin", CONTENT[:-1]), tmp_path / "downloads")


def test_stalled_download_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(_tfds, "TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        start = time.monotonic()
        with pytest.raises(DataError, match="failed"):
            _tfds.download(registered(f"http://127.0.0.1:{server.getsockname()[1]}/file.bin"), tmp_path / "downloads")
        assert time.monotonic() - start < 8


def test_file_that_is_no_array_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x-train.array_record-00000-of-00001").write_bytes(b"nothing" * 10000)
    with pytest.raises(DataError, match=r"x-train\.array_record"):
        next(_tfds.read_records(tmp_path, "train"))
