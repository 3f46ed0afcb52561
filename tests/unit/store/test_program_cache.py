"""A program is read only if its file holds what was written for its key."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

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
