"""Compare a chain group with its markers, even while it is being written."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bayesmesh.files import hash_file
from bayesmesh.store.chains.arrays import DRAWS, STAGED, digest_of, staged_name
from bayesmesh.store.chains.markers import Commit, read_markers
from bayesmesh.store.lock import LOCK_NAME

_CHECKPOINT = re.compile(r"^(warmup|sample)-(\d{9})\.npz$")

Check = Callable[[Sequence[Commit]], str]
"""Function from markers to a description of damage; empty without damage."""


def find_damage(folder: Path, segment_draws: int, commits: Sequence[Commit], *, goes_on: bool = False) -> Iterator[str]:
    """Yield one line per deviation from the markers: a missing or changed file, a gap, a lost marker.

    Args:
        folder: folder of the chain group.
        segment_draws: iterations of a whole segment.
        commits: markers read before; they are read again before damage is reported.
        goes_on: whether a file that cannot be read yields one more line, instead of an error.

    Raises:
        OSError: a file cannot be read.
    """
    group = _Group(folder, segment_draws)
    checks, named = list[Check](), set[str]()
    for commit in commits:
        checks.append(functools.partial(group.gap, commit.name))
        # Commits share the files of leaves that do not change.
        checks += [functools.partial(group.file, file) for file in commit.files if file not in named]
        named |= commit.files.keys()
    described = dict.fromkeys(name for commit in commits for name in commit.metadata)
    checks += [functools.partial(group.description, name) for name in described]
    for check in (*checks, group.unnamed_shard, group.unnamed_checkpoint):
        try:
            yield from _confirmed(group, commits, check)
        except OSError as error:
            if not goes_on:
                raise
            yield f"{error.filename}: cannot be read: {error.strerror}"


def resumable(folder: Path) -> list[Commit]:
    """Return the commits from which a chain group could be resumed, in order: all files up to each are as written."""
    group, sound = _Group(folder, 1), list[Commit]()
    commits = read_markers(folder, [])
    for last, commit in zip((None, *commits), commits, strict=False):
        if not commit.follows(last) or any(group.file(f"{DRAWS}/{name}", [*sound, commit]) for name in commit.shards):
            break
        sound.append(commit)
    descriptions = {name for commit in sound for name in commit.metadata}
    if any(group.description(name, sound) for name in descriptions):
        return []
    return [c for c in sound if all(_hash_of(folder / name) == value for name, value in c.checkpoint_files.items())]


def files_after(folder: Path, last: Commit) -> list[Path]:
    """Return the files of a chain group that no commit up to `last` names, and descriptions of arrays that begin later."""
    commits = read_markers(folder, [])
    kept = commits[: 1 + [commit.name for commit in commits].index(last.name)]
    named = {name for commit in kept for name in (f"commits/{commit.name}", *commit.files)}
    named |= {f"{DRAWS}/{name}/zarr.json" if name else f"{DRAWS}/zarr.json" for c in kept for name in c.metadata}
    found = (path for path in sorted(folder.rglob("*")) if not path.is_dir() or path.is_symlink())
    return [path for path in found if path.relative_to(folder).as_posix() not in named | {"store.json", LOCK_NAME}]


def _confirmed(group: _Group, commits: Sequence[Commit], check: Check) -> Iterator[str]:
    """Yield the damage that a check finds if the markers are the same after it as before."""
    while line := check(commits):
        # The caller knows about damaged markers; one that is damaged later leaves a gap, or files without a marker.
        before, commits = commits, read_markers(group.folder, [])
        if commits == before:
            yield line
            return


class _Group:
    """Checks of one chain group. Each takes the markers as its last argument and reads the current files."""

    def __init__(self, folder: Path, segment_draws: int) -> None:
        self.folder, self._segment_draws = folder, segment_draws

    def gap(self, name: str, commits: Sequence[Commit]) -> str:
        """Check that a commit, unless it was replaced, continues the previous one."""
        for last, commit in zip((None, *commits), commits, strict=False):
            if commit.name == name and not commit.follows(last):
                return f"{self._marker(commit)}: the segment before it is missing"
        return ""

    def file(self, name: str, commits: Sequence[Commit]) -> str:
        """Check a file that a commit names."""
        commit = next((c for c in commits if name in c.files), None)
        if commit is None:
            return ""
        path, is_newest, expected = self.folder / name, name in commits[-1].files, commit.files[name]
        # Shards of the newest commit may still be staged; checkpoints never are.
        if is_newest and _hash_of(self.folder / STAGED / staged_name(name.partition("/")[2])) == expected:
            return ""
        found = _hash_of(path)
        if found is None:
            # Of all checkpoints only the newest must exist.
            is_needed = name not in commit.checkpoint_files or is_newest
            return f"{path}: is missing, though {self._marker(commit)} names it" if is_needed else ""
        if found != expected:
            return f"{path}: is damaged: its sha256 differs from that in {self._marker(commit)}"
        return ""

    def description(self, name: str, commits: Sequence[Commit]) -> str:
        """Compare the description of an array or group with its digest in the newest commit that names it."""
        commit = next((c for c in reversed(commits) if name in c.metadata), None)
        path = self.folder / DRAWS / name / "zarr.json"
        if commit is None or digest_of(path) == commit.metadata[name]:
            return ""
        return f"{path}: is missing or damaged: it differs from {self._marker(commit)}"

    def unnamed_shard(self, commits: Sequence[Commit]) -> str:
        """Find a shard in place that no marker names. Markers are written first, so its marker was lost."""
        # An array may be called `c`, as Zarr calls the folder of its shards, and has a description of its own.
        found = [
            path
            for path in (self.folder / DRAWS).rglob("c/**/*")
            if path.is_file() and path.suffix != ".partial" and path.name != "zarr.json"
        ]
        named = {self.folder / name for commit in commits for name in commit.files}
        return next((self._lost(path) for path in sorted(found) if path not in named), "")

    def unnamed_checkpoint(self, commits: Sequence[Commit]) -> str:
        """Find a checkpoint whose marker was lost.

        A writer killed between checkpoint and marker leaves a checkpoint of the next segment and the folder of staged
        shards; any other checkpoint without a marker had one.
        """
        last = commits[-1] if commits else None
        found = [
            (match[1] == "sample", int(match[2]), path)
            for path in (self.folder / "checkpoints").glob("*.npz")
            if (match := _CHECKPOINT.match(path.name))
        ]
        begun = (last.phase == "sample", last.stop) if last is not None else (False, 0)
        newer = sorted(each for each in found if each[:2] > begun)
        for is_sample, stop, path in newer:
            done = begun[1] if is_sample == begun[0] else 0
            fits = stop <= (done // self._segment_draws + 1) * self._segment_draws and is_sample == newer[0][0]
            if not fits or not (self.folder / STAGED).is_dir():
                return self._lost(path)
        return ""

    def _lost(self, path: Path) -> str:
        return f"{path}: no marker in {self.folder / 'commits'} names it: a marker was lost"

    def _marker(self, commit: Commit) -> Path:
        return self.folder / "commits" / commit.name


def _hash_of(path: Path) -> str | None:
    """Return the sha256 of a file, None if it does not exist."""
    try:
        return hash_file(path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
