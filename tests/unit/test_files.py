"""Files and folders are written atomically."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.files import (
    atomic_folder,
    atomic_path,
    hash_file,
    read_json,
    write_json,
    write_json_once,
    write_text,
)


def test_new_content_appears_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.csv"
    with atomic_path(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (path.parent, ".partial")
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failure_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("place", ["/dev/null", "/proc/a.csv", "/proc/a/b.csv"])
def test_devices_and_folders_of_the_kernel_take_no_files(place: str) -> None:
    # Only root gets as far as the second error.
    with pytest.raises((StoreError, PermissionError), match=place[:5]), atomic_path(Path(place)):
        pass


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    def fill(number: int) -> None:
        with atomic_path(tmp_path / "a.json"):
            raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match="No space left on device") as caught:
        fill(errno.ENOSPC)
    assert caught.value.filename == str(tmp_path / "a.json")
    with pytest.raises(ConnectionResetError) as other:
        fill(errno.ECONNRESET)
    assert other.value.filename is None, "what is written may be read from elsewhere"


@pytest.mark.parametrize("operation", ["fsync", "replace"])
def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})

    def fail(*args: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, operation, fail)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"a": 2})
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (order.append(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b)))
    write_text(tmp_path / "a.txt", "x")
    assert [Path(o).name[:7] for o in order] == [".a.txt.", "replace", tmp_path.name[:7]]


def test_folder_replaces_the_old_one_only_when_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    path.mkdir()
    (path / "old").touch()

    def fail() -> None:
        with atomic_folder(path) as temporary:
            (temporary / "half").touch()
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert [p.name for p in path.iterdir()] == ["old"]
    with atomic_folder(path) as temporary:
        assert not list(temporary.iterdir()), "what the failed one left is gone"
        (temporary / "new").touch()
        assert [p.name for p in path.iterdir()] == ["old"]
    assert [p.name for p in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_strict_sorted_and_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"b": [1.5, None], "a": "Les Misérables"})
    assert path.read_text(encoding="utf-8") == '{\n  "a": "Les Misérables",\n  "b": [\n    1.5,\n    null\n  ]\n}\n'
    assert read_json(path) == {"a": "Les Misérables", "b": [1.5, None]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}])
def test_what_json_cannot_hold_is_refused_before_writing(tmp_path: Path, value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        write_json(tmp_path / "a.json", {"x": value})
    assert not list(tmp_path.iterdir())


def test_hash_is_sha256_of_the_bytes(tmp_path: Path) -> None:
    content = os.urandom(300_000)
    (tmp_path / "a").write_bytes(content)
    assert hash_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_a_file_that_exists_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a" / "owner.json"
    assert write_json_once(path, {"pid": 1})
    assert not write_json_once(path, {"pid": 2})
    assert read_json(path) == {"pid": 1}
    assert list(path.parent.iterdir()) == [path]
