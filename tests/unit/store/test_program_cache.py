"""A program is read only if its file holds what was written for its key."""

from __future__ import annotations

import logging
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.store import program_cache
from bayesmesh.store.program_cache import ProgramCache


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


def compile_in(folder: Path, started: Any, compiled: Any) -> None:
    """Look for a program as a job does, and compile it if there is none."""
    cache = ProgramCache(folder)
    started.wait()
    if cache.get("one") is None:
        with compiled.get_lock():
            compiled.value += 1
        time.sleep(0.3)
        cache.put("one", b"program")
    assert cache.get("one") == b"program"


def test_jobs_that_start_together_compile_a_program_once(tmp_path: Path) -> None:
    several = multiprocessing.get_context("fork")
    started, compiled = several.Barrier(3), several.Value("i", 0)
    jobs = [several.Process(target=compile_in, args=(tmp_path, started, compiled)) for _ in range(3)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0, 0, 0]
    assert compiled.value == 1
    assert [path.name for path in tmp_path.iterdir()] == ["one-cache"]


def test_nobody_waits_for_a_process_that_is_gone(tmp_path: Path) -> None:
    several = multiprocessing.get_context("fork")
    job = several.Process(target=lambda: ProgramCache(tmp_path).get("one") and None)
    job.start()
    job.join()
    assert ProgramCache(tmp_path).get("one") is None


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
