"""One writer: a second one is refused, a dead one is followed, and a clock that is wrong does no harm."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import NotFinished, StoreError
from bayesmesh.store.lock import LOCK_NAME, WriterLock

SHORT = 0.05
"""Seconds between heartbeats; a lock is watched for three of them."""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def _owned_by(folder: Path, **changes: Any) -> Path:
    """Leave a lock as another process would have; what is not said is as in this one."""
    with WriterLock(folder, SHORT):
        owner = json.loads((folder / LOCK_NAME).read_text())
    path = folder / LOCK_NAME
    path.write_text(json.dumps({**owner, "token": "other", **changes}))
    return path


def test_the_lock_is_there_while_it_is_held_and_gone_after(tmp_path: Path) -> None:
    folder = tmp_path / "chains" / "group-000"
    with WriterLock(folder) as lock:
        owner = json.loads((folder / LOCK_NAME).read_text())
        assert owner["pid"] == os.getpid()
        assert {"host", "user", "job", "boot", "heartbeat_seconds"} <= owner.keys()
        lock.check()
    assert not list(folder.iterdir())


def test_a_second_writer_is_refused_at_once_with_the_owner(tmp_path: Path) -> None:
    with WriterLock(tmp_path):
        start = time.monotonic()
        with pytest.raises(StoreError, match=f"is being written by process {os.getpid()} of .* on ") as caught:
            WriterLock(tmp_path).__enter__()
        assert time.monotonic() - start < 5, "a process of this machine is looked up, not watched"
        assert caught.value.remedy.endswith(f"kill {os.getpid()} on {os.uname().nodename}")
        assert (tmp_path / LOCK_NAME).exists(), "the first one keeps it"
    assert not list(tmp_path.iterdir()), "the second one left nothing"


@pytest.mark.parametrize(
    "changes",
    [{"pid": 2**22 + 1}, {"started_ticks": "1"}],
    ids=["its process is gone", "its number is another process's now"],
)
def test_a_dead_owner_of_this_machine_is_followed_at_once(
    tmp_path: Path, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    path = _owned_by(tmp_path, heartbeat_seconds=1000, **changes)
    with WriterLock(tmp_path, SHORT) as lock:
        lock.check()
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert "taking over the lock of process" in caplog.text
    assert not list(tmp_path.iterdir())


def test_an_owner_on_another_boot_of_a_machine_of_this_name_is_watched(tmp_path: Path, child: Any) -> None:
    """This machine was started again, or another has its name, as clones and containers do."""
    path = _owned_by(tmp_path, boot="another", pid=child.pid, heartbeat_seconds=1.0)
    beat = f"import os, time\nfor i in range(1000):\n    os.utime({str(path)!r}, (i, i))\n    time.sleep(0.05)"
    with subprocess.Popen([sys.executable, "-c", beat]) as process:
        with pytest.raises(StoreError, match="is being written by process"):
            WriterLock(tmp_path).__enter__()
        process.kill()
    _owned_by(tmp_path, boot="another", pid=child.pid)
    with WriterLock(tmp_path, SHORT) as lock:
        lock.check()


def test_the_wait_for_another_owner_can_be_given_up(tmp_path: Path) -> None:
    """By a job that is asked to stop meanwhile; the lock stays its owner's."""
    path = _owned_by(tmp_path, host="elsewhere", heartbeat_seconds=1000)
    before = path.read_bytes()

    def give_up() -> None:
        raise NotFinished("asked to stop", "run it again")

    with pytest.raises(NotFinished):
        WriterLock(tmp_path, SHORT, give_up).__enter__()
    assert path.read_bytes() == before


@pytest.mark.parametrize("age", [-1e6, 0, 1e6], ids=["clock ahead", "same clock", "clock behind"])
def test_a_silent_owner_elsewhere_is_followed_whatever_its_clock_says(tmp_path: Path, age: float) -> None:
    path = _owned_by(tmp_path, host="elsewhere")
    os.utime(path, (time.time() - age, time.time() - age))
    with WriterLock(tmp_path, SHORT) as lock:
        lock.check()


@pytest.mark.parametrize("age", [-1e6, 0, 1e6], ids=["clock ahead", "same clock", "clock behind"])
def test_an_owner_elsewhere_that_gives_signs_of_life_is_respected(tmp_path: Path, age: float) -> None:
    path = _owned_by(tmp_path, host="elsewhere", heartbeat_seconds=1.0)
    beat = f"import os, sys, time\nfor i in range(1000):\n    os.utime({str(path)!r}, (time.time() - {age} + i,) * 2)\n    time.sleep(0.05)"
    with subprocess.Popen([sys.executable, "-c", beat]) as process:
        with pytest.raises(StoreError, match=r"is being written by process .* on elsewhere"):
            WriterLock(tmp_path).__enter__()
        process.kill()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"{}", b'"x"', b"[" * 100_000])
def test_a_damaged_lock_is_followed_when_nobody_keeps_it_alive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LOCK_NAME).write_bytes(content)
    with WriterLock(tmp_path, SHORT) as lock:
        lock.check()
    assert not list(tmp_path.iterdir())


def test_who_lost_the_lock_notices_and_leaves_it_to_the_new_owner(tmp_path: Path) -> None:
    """A process that was suspended, and meanwhile taken for dead."""
    with WriterLock(tmp_path, SHORT) as lock:
        path = tmp_path / LOCK_NAME
        other = json.dumps({**json.loads(path.read_text()), "token": "other"})
        path.unlink()
        path.write_text(other)
        with pytest.raises(
            StoreError,
            match=r"writer\.json: this process no longer holds the lock\n  remedy: another job has taken over",
        ):
            lock.check()
        before = path.stat().st_mtime_ns
        time.sleep(4 * SHORT)
        assert path.stat().st_mtime_ns == before, "it gives no sign of life for another"
    assert path.read_text() == other


def test_the_heartbeat_goes_on_while_the_lock_is_held(tmp_path: Path) -> None:
    with WriterLock(tmp_path, SHORT):
        first = (tmp_path / LOCK_NAME).stat().st_mtime_ns
        time.sleep(6 * SHORT)
        assert (tmp_path / LOCK_NAME).stat().st_mtime_ns > first


def test_a_lock_that_another_follower_took_first_is_put_back(tmp_path: Path) -> None:
    stale = json.loads(_owned_by(tmp_path, pid=2**22 + 1).read_text())
    fresh = json.dumps({**stale, "token": "fresh"})
    (tmp_path / LOCK_NAME).write_text(fresh)
    WriterLock(tmp_path)._set_aside(stale)
    assert (tmp_path / LOCK_NAME).read_text() == fresh
    assert [p.name for p in tmp_path.iterdir()] == [LOCK_NAME]


def test_of_many_that_start_at_once_one_writes(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from bayesmesh.store.lock import WriterLock
from bayesmesh.errors import NotFinished, StoreError
input()
try:
    with WriterLock(Path(sys.argv[1])):
        print("mine", flush=True)
        time.sleep(3)
except StoreError:
    print("refused", flush=True)
"""
    jobs = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for job in jobs:
        assert job.stdin is not None
        job.stdin.write("go\n")
        job.stdin.flush()
    assert sorted(job.communicate()[0].strip() for job in jobs) == ["mine", "refused", "refused", "refused"]


def test_a_lock_that_cannot_be_read_is_nobodys_to_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with WriterLock(tmp_path):
        content = (tmp_path / LOCK_NAME).read_bytes()

        def fail(path: Path) -> bytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        with monkeypatch.context() as patch:
            patch.setattr("bayesmesh.store.lock.read_bytes", fail)
            with pytest.raises(OSError, match="writer"):
                WriterLock(tmp_path).__enter__()
        assert (tmp_path / LOCK_NAME).read_bytes() == content
