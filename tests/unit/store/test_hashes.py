"""The list of a folder's hashes names everything in it, and what differs."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
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


def test_what_was_hashed_before_is_not_read_again(folder: Path) -> None:
    about = (folder / "zarr.json").stat()
    write_hashes(folder, {(about.st_dev, about.st_ino): "0" * 64})
    assert hashes_of(folder)["posterior.zarr/zarr.json"] == "0" * 64


@pytest.mark.parametrize("content", [b"", b"no hash\n", b"\xff\xfe", b"0" * 64 + b" one blank\n"])
def test_a_damaged_list_is_named(folder: Path, content: bytes) -> None:
    path = folder.with_suffix(".sha256")
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"posterior\.sha256: is damaged"):
        hashes_of(folder)
    path.unlink()
    with pytest.raises(StoreError, match=r"posterior\.sha256: does not exist"):
        hashes_of(folder)
