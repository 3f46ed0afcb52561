"""A program is read only if its file holds what was written for its key."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bayesmesh.sampling import program_cache
from bayesmesh.sampling.program_cache import ProgramCache


@pytest.fixture
def cache(tmp_path: Path) -> ProgramCache:
    """Return a cache of two programs."""
    cache = ProgramCache(tmp_path)
    cache.put("one", b"first program")
    cache.put("two", b"other program")
    return cache


def test_a_program_comes_back_and_an_unknown_one_is_none(cache: ProgramCache) -> None:
    assert cache.get("one") == b"first program"
    cache.put("one", b"anew")
    assert (cache.get("one"), cache.get("two"), cache.get("three")) == (b"anew", b"other program", None)


@pytest.mark.parametrize("damage", ["swap", "flip", "cut", "empty", "bare", "append"])
def test_what_was_not_written_for_the_key_is_removed_with_a_warning(
    cache: ProgramCache, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = tmp_path / "one-cache", tmp_path / "two-cache"
    whole = one.read_bytes()
    changed = {
        "swap": two.read_bytes(), "flip": bytes([whole[0] ^ 1]) + whole[1:], "cut": whole[:-1], "empty": b"",
        "bare": b"first program", "append": whole + b"\0",
    }  # fmt: skip
    one.write_bytes(changed[damage])
    with caplog.at_level(logging.WARNING, "bayesmesh"):
        assert cache.get("one") is None
    assert f"{one}: is damaged, or belongs to another program" in caplog.text
    assert not one.exists()
    assert cache.get("two") == b"other program"


def test_jobs_that_start_together_compile_a_program_once(tmp_path: Path) -> None:
    """Threads stand for jobs: a lock belongs to who has opened the file."""
    together, compiled = threading.Barrier(3), list[int]()

    def run(job: int) -> bytes | None:
        cache = ProgramCache(tmp_path)
        together.wait()
        if cache.get("one") is None:
            compiled.append(job)
            time.sleep(0.3)
            cache.put("one", b"program")
        return cache.get("one")

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [b"program"] * 3
    assert len(compiled) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one-cache"]


def test_nobody_waits_for_a_process_that_is_gone(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from bayesmesh.sampling.program_cache import ProgramCache; print(ProgramCache(Path({str(tmp_path)!r})).get('one'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None\n"
    assert len(list(tmp_path.iterdir())) == 1, "it left its claim"
    begun = time.monotonic()
    assert ProgramCache(tmp_path).get("one") is None
    assert time.monotonic() - begun < program_cache.LONGEST_WAIT / 10


def test_what_is_compiled_too_long_is_compiled_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(program_cache, "LONGEST_WAIT", 0.1)
    assert ProgramCache(tmp_path).get("one") is None
    with caplog.at_level(logging.INFO, "bayesmesh"):
        assert ProgramCache(tmp_path).get("one") is None
    assert caplog.text.count("waits for a program") == 1


def test_processes_of_one_program_do_not_wait(tmp_path: Path) -> None:
    """Each asks for the same program; to wait for another one would be to wait for ever."""
    assert ProgramCache(tmp_path, lambda: False).get("one") is None
    assert ProgramCache(tmp_path, lambda: False).get("one") is None
    assert list(tmp_path.iterdir()) == []
