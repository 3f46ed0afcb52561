"""Find the files that a source declares: a file, a folder with everything below it, or a pattern such as ``data/*.csv``."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from bayesmesh.errors import DataError

MIRROR_VARIABLE = "BAYESMESH_MIRROR"
"""Environment variable that names the folder of published files."""

MOST_ENTRIES = 200_000
"""Largest number of files and folders that are searched for a pattern."""

_NARROWER = "name a folder that holds little else than the data"

_SPECIAL = "*?["
_STORE = ".zarr"
_IN_MIRROR = f"${MIRROR_VARIABLE}/"


class InputFiles(NamedTuple):
    """The user's files that a job reads.

    Attributes:
        patterns: key of the configuration -> files, folders or patterns, relative to the folder of the project.
        mirror: patterns relative to the mirror, which count only if there is a mirror that has such files.
    """

    patterns: Mapping[str, tuple[str, ...]]
    mirror: tuple[str, ...] = ()

    def find(self) -> dict[str, Path]:
        """Return name -> file; names of files in the mirror do not depend on where the mirror is.

        Raises:
            DataError: see `find_files`.
        """
        named = [path for key, patterns in self.patterns.items() for path in find_files(patterns, key)]
        return {str(path): path for path in named} | self._of_mirror()

    def _of_mirror(self) -> dict[str, Path]:
        if not (self.mirror and (folder := os.environ.get(MIRROR_VARIABLE))):
            return {}
        root = Path(folder).expanduser()
        found = (path for pattern in self.mirror for path in sorted(root.glob(pattern)) if path.is_file())
        return {_IN_MIRROR + path.relative_to(root).as_posix(): path for path in found}


def is_of_mirror(name: str) -> bool:
    """Return whether a name from `InputFiles.find` is that of a file in the mirror."""
    return name.startswith(_IN_MIRROR)


def locate_file(name: str, results: Path) -> Path | None:
    """Return the path of a file with a name from `InputFiles.find`; None for one in a mirror that is not set or lacks it.

    Args:
        name: the name.
        results: folder of results; other files of the project lie beside it.
    """
    if is_of_mirror(name):
        path = Path(os.path.expandvars(name)).expanduser()
        return path if path.is_file() else None
    beside = results.parent / name
    return beside if beside.exists() else Path(name)


def find_files(patterns: Iterable[str], key: str) -> list[Path]:
    """Return the files that match patterns, sorted by name within each pattern; hidden files below folders are left out.

    Args:
        patterns: files, folders or patterns, in which ``**`` stands for any folders, relative to the current folder. A
            pattern that matches only folders means all files below them; if it also matches files, folders are ignored.
        key: key of the configuration that holds them, for messages.

    Raises:
        DataError: a pattern matches no file, or two match the same file.
    """
    found: list[Path] = []
    for pattern in patterns:
        _check_scope(pattern, key)
        files = _named(pattern)
        if not files:
            raise DataError(f"key '{key}': {_problem(pattern)}", _remedy(pattern))
        _refuse_outside(pattern, files, key)
        found += files
    seen: set[Path] = set()
    for file in found:
        if file in seen:
            raise DataError(f"key '{key}': {file} is named twice", "name every file once")
        seen.add(file)
    return found


def _base(pattern: str) -> tuple[Path, float]:
    """Return the folder in which a pattern is sought, and how many levels below it; a folder is sought in whole."""
    path = Path(pattern).expanduser()
    special = [at for at, part in enumerate(path.parts) if any(each in part for each in _SPECIAL)]
    if path.is_dir() or not special:
        return path, math.inf
    return Path(*path.parts[: special[0]]), math.inf if "**" in path.parts else len(path.parts) - special[0]


def _check_scope(pattern: str, key: str) -> None:
    """Reject a pattern or a folder for which very many entries would have to be searched, such as ``/**/*.csv``."""
    (base, levels), count = _base(pattern), 0
    if base.suffix == _STORE:
        return
    if levels == math.inf and Path.home().is_relative_to(os.path.realpath(base)):
        raise DataError(f"key '{key}': {pattern}: would search the whole of {os.path.realpath(base)}", _NARROWER)
    # Patterns follow links.
    for at, folders, files in os.walk(base, followlinks=True):
        count += len(folders) + len(files)
        if count > MOST_ENTRIES:
            raise DataError(
                f"key '{key}': {pattern}: more than {MOST_ENTRIES:,} files and folders to search below {base}",
                _NARROWER,
            )
        if len(Path(at).parts) - len(base.parts) >= levels - 1:
            folders.clear()


def _refuse_outside(pattern: str, files: Iterable[Path], key: str) -> None:
    """Reject files that a pattern or a folder reaches through links out of its own folder and the project's."""
    (base, _), folders = _base(pattern), dict[Path, Path]()
    roots = [base.resolve(), Path().resolve()]
    for file in files if base.is_dir() else ():
        folder = folders.get(file.parent) or folders.setdefault(file.parent, file.parent.resolve())
        real = file.resolve() if file.is_symlink() else folder
        if not any(real.is_relative_to(root) for root in roots):
            raise DataError(
                f"key '{key}': {file} is a link to {real}, outside of the project", "name this file by itself"
            )


def stores_of(files: Iterable[Path]) -> list[Path]:
    """Return files in their order, with each Zarr store in place of the files of which it consists.

    >>> stores_of([Path("a.npz"), Path("b.zarr/zarr.json"), Path("b.zarr/x/c/0")])
    [PosixPath('a.npz'), PosixPath('b.zarr')]
    """
    return list(dict.fromkeys(_store_above(file) or file for file in files))


def _store_above(file: Path) -> Path | None:
    return next((folder for folder in reversed(file.parents) if folder.suffix == _STORE), None)


def _named(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_file():
        return [path]
    if path.is_dir():
        return _below(path)
    found = sorted(map(Path, glob.glob(str(path), recursive=True)))
    # A pattern such as `year=*` that matches only folders means all their files; `*` that also matches files ignores folders.
    are_folders = not any(each.is_file() or each.suffix == _STORE for each in found)
    files: dict[Path, None] = {}
    for each in found:
        is_whole = are_folders or each.suffix == _STORE
        files |= dict.fromkeys([each] if each.is_file() else _below(each) if is_whole else [])
    return list(files)


def _below(folder: Path) -> list[Path]:
    """Return the files below a folder, sorted; a Zarr store includes hidden ones, because some of its metadata are hidden."""
    files = []
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            files.append(file)
        elif _store_above(file) and not file.is_dir():
            raise DataError(f"{file}: not a regular file, in a Zarr store", "remove it, or write the store anew")
    return [file for file in files if _store_above(file) or not _is_hidden(file.relative_to(folder))]


def _is_hidden(path: Path) -> bool:
    """Return whether a file, or a folder above it, is hidden or a marker such as ``_SUCCESS`` of a partitioned table."""
    return any(part.startswith((".", "_")) for part in path.parts)


def _problem(pattern: str) -> str:
    path = Path(pattern).expanduser()
    if path.exists() and not path.is_dir():
        return f"{pattern}: not a regular file, but a pipe, a socket or a device"
    if path.is_dir():
        return f"{pattern}: the folder holds no file"
    if any(character in pattern for character in _SPECIAL):
        return f"{pattern}: no file has such a name"
    return f"{pattern}: no such file"


def _remedy(pattern: str) -> str:
    if "://" in pattern:
        return "addresses are not read: download the file, and give its path"
    path = Path(pattern).expanduser()
    folder = next((each for each in path.parents if each.is_dir()), Path())
    there = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))[:8]
    listed = f"; {folder.absolute()} holds {', '.join(there)}" if there else ""
    return f"correct the name; it is taken from the folder of the project, {Path.cwd()}{listed}"
