"""The list of a folder's hashes names everything in it, and what differs."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from bayesmesh.store.hashes import hashes_of, write_hashes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "posterior.zarr"
    for name in ("zarr.json", "posterior/weights/c/0/0", "posterior/a  b/c/0"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(name.encode())
    write_hashes(folder, {})
    return folder


def test_it_is_what_sha256sum_reads(folder: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "posterior.sha256"], cwd=folder.parent, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert hashes_of(folder)["posterior.zarr/zarr.json"] == hashlib.sha256(b"zarr.json").hexdigest()
