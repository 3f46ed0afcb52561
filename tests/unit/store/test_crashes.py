"""The process dies at every step of every kind of commit; what it left behind is resumed to the same bytes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bayesmesh.store.chains.segments import ChainStore

Advance = Callable[..., ChainStore]
ReadTree = Callable[[Path], Mapping[str, bytes]]

RECORD = {"identity": "0123456789abcdef"}


@pytest.mark.parametrize(
    ("before", "after", "least"),
    [
        pytest.param(None, 0, None, id="first commit of all, warmup"),
        pytest.param(0, 4, ("warmup", 4), id="first commit of draws"),
        pytest.param(4, 6, ("sample", 4), id="a part of a segment", marks=pytest.mark.nightly),
        pytest.param(6, 8, ("sample", 6), id="the rest of that segment", marks=pytest.mark.nightly),
        pytest.param(2, 3, ("sample", 2), id="more of the first segment, and still not all", marks=pytest.mark.nightly),
    ],
)
def test_death_at_every_step(
    tmp_path: Path,
    advance: Advance,
    read_tree: ReadTree,
    kill_at: Callable[[int], AbstractContextManager[list[str]]],
    before: int | None,
    after: int,
    least: tuple[str, int] | None,
) -> None:
    """`least`: where it resumes at worst; nothing that was committed is lost."""
    advance(tmp_path / "whole", after)
    expected = read_tree(tmp_path / "whole")
    if before is not None:
        advance(tmp_path / "begun", before)
    goal = ("sample", after) if after else ("warmup", 4)
    number, resumed_at = 0, set()
    while True:
        folder = tmp_path / f"killed-{number}"
        if before is not None:
            shutil.copytree(tmp_path / "begun", folder)
        with kill_at(number) as made:
            advance(folder, after)
        if len(made) < number:
            break
        last = ChainStore(folder, 4, RECORD).resume()
        found = (last.phase, last.stop) if last else None
        resumed_at.add(found)
        assert found in (least, ("sample", before), goal), made[-1:]
        advance(folder, after)
        now = read_tree(folder)
        # Markers tell of the runs that they were written in, and may differ in that.
        changed = {n for n in expected.keys() | now.keys() if now.get(n) != expected.get(n)}
        others = {n for n in changed if not n.startswith("commits/")}
        # After the marker only old checkpoints are left to remove, which the next commit does.
        left_over = {n for n in others if n.startswith("checkpoints/") and n not in expected and found == goal}
        assert not others - left_over, made[-1:]
        assert len(left_over) <= 1
        assert {n for n in now if n.startswith("commits/")} == {n for n in expected if n.startswith("commits/")}
        number += 1
    assert number > 15, "steps of a commit"
    assert least in resumed_at
    assert goal in resumed_at


def test_death_while_coming_back(
    tmp_path: Path,
    advance: Advance,
    read_tree: ReadTree,
    kill_at: Callable[[int], AbstractContextManager[list[str]]],
) -> None:
    """Killed again and again, each time a few steps later, the run still ends as an unbroken one."""
    advance(tmp_path / "whole", 8)
    for number in range(0, 60, 3):
        with kill_at(number):
            advance(tmp_path / "killed", 6)
    for number in range(0, 60, 3):
        with kill_at(number):
            advance(tmp_path / "killed", 8)
    advance(tmp_path / "killed", 8)
    assert read_tree(tmp_path / "killed" / "draws.zarr") == read_tree(tmp_path / "whole" / "draws.zarr")
