"""Record the files that a job reads besides its code and its results, and find those that have changed since.

An audit hook of Python sees every file that is opened or loaded, by whichever module: data that a model or a source
reads, and code that `importlib` or `exec` runs. It does not see files that a library written in C opens by itself, nor
those that a child process reads, nor which files a folder holds.

Not recorded are files of Python and of installed packages, of the operating system, and of the mirror, which are
verified; temporary files, files in hidden folders such as ``~/.cache``, the configuration, and what the job itself has
written. If the current folder lies in such a place, its files are recorded all the same.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.config.config_registry import PACKAGES, component_files
from bayesmesh.config.config_source_code import INSTALLED, PACKAGE_ROOT, digest_file, source_closure
from bayesmesh.errors import ConfigError
from bayesmesh.files import hash_file
from bayesmesh.planning.plan_flow import KEYS, components
from bayesmesh.planning.plan_specs import StageSpec

ALWAYS_HASHED, NEVER_HASHED = 2**20, 2**30
"""Sizes in bytes: files up to the first are compared by content; files above the second by size and time alone."""

MANY = 1000
"""Number of files above which an unchanged size and time stand for the content of every file."""

_SET_APART = ("BAYESMESH_MIRROR", "XDG_CACHE_HOME", "TMPDIR", "SLURM_TMPDIR")
"""Variables that name folders of verified or temporary files."""

_OF_SYSTEM = (
    *("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/tmp", "/usr"),  # noqa: S108
    *("/var/cache", "/var/lib", "/var/tmp"),  # noqa: S108 - only compared
)
_CONFIGURATION = ("config/config.yaml", "config/experiments")
_CHANGING = "changed while it was read"

_EVENTS = {"open", "sqlite3.connect", "os.rename"}
_active: list[Observation] = []


class Observation:
    """The files that are read while an observation lasts.

    Args:
        spec: specification of the job.
        later: specifications of later stages, whose analyses the job checks without being made from them.
    """

    def __init__(self, spec: StageSpec, later: Sequence[StageSpec] = ()) -> None:
        self._spec, self._later = spec, later
        self._started, self._modules = time.time_ns(), frozenset(sys.modules)
        self._read, self._written = set[str](), set[str]()
        # The job may go to another folder.
        self._project = os.getcwd()
        apart = [*_CONFIGURATION, *_OF_SYSTEM, spec.results, sys.prefix, sys.base_prefix, tempfile.gettempdir()]
        apart += filter(None, map(os.environ.get, _SET_APART))
        self._apart = {find(folder) for folder in apart for find in (os.path.abspath, os.path.realpath)}

    def note(self, path: str, *, is_read: bool) -> None:
        """Record that a file is opened, to be read or only to be written."""
        (self._read if is_read else self._written).add(os.path.abspath(path))

    def files(self) -> dict[str, str]:
        """Return file -> stamp, see `changed`, of all files that have been read so far.

        Files below the current folder have names relative to it, so that a project may be moved. Files whose content is
        part of the fingerprint of the job's code are left out.
        """
        modules = [module for name, module in sys.modules.copy().items() if name not in self._modules]
        files = (getattr(module, "__dict__", {}).get("__file__") for module in modules)
        loaded = {os.path.abspath(file) for file in files if isinstance(file, str)}
        paths = {_source(path) for path in {*self._read, *loaded}} - self._written
        found = {path for path in paths if self._counts(path) and os.path.isfile(path)}
        found |= {path for path in loaded if _is_component(path)}
        return {self._name(path): self._stamp(path) for path in sorted(found - self._covered(found))}

    def has_read(self, path: Path) -> bool:
        """Return whether this job has read a file, or one in a folder, also where it lies among the results."""
        places = {find(os.path.join(self._project, path)) for find in (os.path.abspath, os.path.realpath)}
        return any(_is_below(read, place) for read in self._read for place in places)

    def _counts(self, path: str) -> bool:
        if _is_below(path, str(PACKAGE_ROOT)) and path.endswith(".py"):
            return False
        is_own = _is_below(path, self._project)
        if any(_is_below(path, f) and not (is_own and _is_below(self._project, f)) for f in self._apart):
            return False
        folders = Path(self._name(path)).parts[:-1]
        return not any(part.startswith(".") or part in {*INSTALLED, "__pycache__"} for part in folders)

    def _covered(self, paths: Iterable[str]) -> set[str]:
        """Return the files that are part of the fingerprint of the job's code."""
        used = [(kind, config) for kind in components(self._spec.stage) for config in _configs(self._spec)]
        files = [file for kind, config in used for file in component_files(kind, config[KEYS[kind]])]
        # An analysis is loaded even if only its check or its section runs.
        files += [each.path for spec in (self._spec, *self._later) for each in spec.analyses if each.is_own]
        covered = set(map(os.path.realpath, source_closure(files)))
        if any(_is_component(path) and os.path.realpath(path) not in covered for path in paths):
            stage = PACKAGE_ROOT / "stages" / f"{self._spec.stage}.py"
            covered |= set(map(os.path.realpath, source_closure(filter(Path.is_file, [stage]))))
        return {path for path in paths if os.path.realpath(path) in covered}

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._project) if _is_below(path, self._project) else path

    def _stamp(self, path: str) -> str:
        about = os.stat(path)
        # What was read is not known then, and the next planning runs the job again.
        digest = _CHANGING if self._is_changing(path) else digest_of(Path(path))
        return f"{digest} {about.st_size} {about.st_mtime_ns}"

    def _is_changing(self, path: str) -> bool:
        return self._started < os.stat(path).st_mtime_ns <= time.time_ns()


def _configs(spec: StageSpec) -> list[dict[str, Any]]:
    return [spec.config, *spec.others.values()]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_component(path: str) -> bool:
    """Return whether a file lies beside sources, models or kernels, where own ones may load further modules by name."""
    folders = (str(PACKAGE_ROOT / folder) for kind, folder in PACKAGES.items() if kind != "analysis")
    return not path.endswith("__init__.py") and any(_is_below(path, folder) for folder in folders)


def _source(path: str) -> str:
    """Return the source of a compiled module, for which Python reads the compiled one; else the path itself."""
    if path.endswith(".pyc"):
        with contextlib.suppress(ValueError):
            return os.path.abspath(importlib.util.source_from_cache(path))
    return path


@contextlib.contextmanager
def observe(spec: StageSpec, later: Sequence[StageSpec] = ()) -> Iterator[Observation]:
    """Observe what is read within the block, by any thread; blocks may be nested.

    Args:
        spec: specification of the job.
        later: see `Observation`.
    """
    _install()
    observation = Observation(spec, later)
    _active.append(observation)
    try:
        yield observation
    finally:
        _active.remove(observation)


@functools.cache
def _install() -> None:
    """Add the hook, once, because Python cannot remove it."""
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _active or event not in _EVENTS:
        return
    match event, arguments:
        case "open", (path, _, int(flags)):
            is_read = not flags & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        case "sqlite3.connect", (path, *_):
            is_read = True
        case "os.rename", (_, path, *_):
            is_read = False
        case _:
            return
    # A descriptor has no name. An error here, as when the current folder is gone, would reach the code that opens the file.
    if isinstance(path, str | bytes):
        with contextlib.suppress(OSError):
            for observation in _active:
                observation.note(os.fsdecode(path), is_read=is_read)


def digest_of(path: Path) -> str:
    """Return the digest of a file: of the syntax of Python, of the bytes of others, of size and time above `NEVER_HASHED`.

    Raises:
        OSError: the file cannot be read.
    """
    about = path.stat()
    if about.st_size > NEVER_HASHED:
        return f"size-{about.st_size}-time-{about.st_mtime_ns}"
    try:
        return digest_file(path)
    except ConfigError:
        # Not Python after all.
        return hash_file(path)


def changed(observed: Mapping[str, str]) -> list[str]:
    """Return the files that have changed since they were observed, sorted, including missing and unreadable ones.

    Args:
        observed: file -> stamp, from `Observation.files`: its digest, its size in bytes and its time in nanoseconds.
    """
    is_many = len(observed) > MANY
    return sorted(name for name, stamp in observed.items() if not _is_same(Path(name), stamp, is_many=is_many))


def _is_same(path: Path, stamp: str, *, is_many: bool) -> bool:
    digest, *known = stamp.rsplit(" ", 2)
    try:
        about = path.stat()
        is_untouched = known == [str(about.st_size), str(about.st_mtime_ns)] and digest != _CHANGING
        return (is_untouched and (is_many or about.st_size > ALWAYS_HASHED)) or digest_of(path) == digest
    except OSError:
        return False


def present_digests(names: Iterable[str]) -> dict[str, str]:
    """Return file -> digest of its present content, ``missing`` where there is none, for the identity of chains."""
    return {name: digest_of(Path(name)) if Path(name).is_file() else "missing" for name in sorted(names)}
