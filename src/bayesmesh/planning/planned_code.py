"""Let a job run only the code that its run was planned with, whatever is edited meanwhile.

The fingerprint says what the files hold when the job starts. It also says what the job runs, because each file must, when
Python loads it, still be the file whose fingerprint was taken. Modules that are already loaded may be edited freely.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

from bayesmesh.config.config_source_code import PACKAGE_ROOT
from bayesmesh.errors import ConfigError
from bayesmesh.planning.plan_fingerprints import stage_files, stage_fingerprint
from bayesmesh.planning.plan_specs import StageSpec
from bayesmesh.running.running_overhead import process_started

type _Stamp = tuple[int, int, int, int]

_loaded: dict[str, _Stamp] = {}
_fingerprinted: dict[str, _Stamp] = {}
_folder = functools.cache(os.path.realpath)
_path_stats = SourceFileLoader.path_stats


class PlannedCode:
    """The code of a job, which must stay as it was planned.

    Args:
        spec: specification of the job.
        planned: fingerprint of its code when the run was planned; empty if nothing was.

    Attributes:
        fingerprint: of the code that the job runs.

    Raises:
        ConfigError: a file has been edited since.
    """

    def __init__(self, spec: StageSpec, planned: str) -> None:
        files = stage_files(spec)
        stamps = {_name(str(path)): _stamp(path) for path in files}
        self.fingerprint = stage_fingerprint(spec)
        if planned and planned != self.fingerprint:
            last = max(files, key=lambda path: path.stat().st_ctime_ns)
            raise ConfigError(
                f"the code of {spec.word} is not what this run was planned with; edited last was {last}",
                f"run snakemake again, which plans with the present code, that of {PACKAGE_ROOT}",
            )
        started = (process_started() or math.inf) * 1e9
        # Modules that were loaded before loads are recorded.
        early = {_name(file) for m in [*sys.modules.values()] if isinstance(file := vars(m).get("__file__"), str)}
        for name, stamp in stamps.items():
            if _loaded.get(name, stamp) != stamp or (name in early - _loaded.keys() and stamp[-1] >= started):
                raise _edited(name)
        self._texts = {name: stamp for name, stamp in stamps.items() if not name.endswith(".py")}
        _fingerprinted.clear()
        _fingerprinted.update(stamps)

    def check(self) -> None:
        """Compare files that are read repeatedly, such as templates, with what was fingerprinted.

        Raises:
            ConfigError: a file has been edited since.
        """
        for name, stamp in self._texts.items():
            if _stamp(name) != stamp:
                raise _edited(name)


def _load(loader: SourceFileLoader, path: str) -> object:
    """Record which version of a module Python is about to load, and refuse one that was edited after its fingerprint was taken."""
    name = _name(path)
    _loaded[name] = stamp = _stamp(path)
    if _fingerprinted.get(name, stamp) != stamp:
        raise _edited(name)
    return _path_stats(loader, path)


# Python asks for the state of each module's file just before it loads it, compiled or not.
SourceFileLoader.path_stats = _load  # type: ignore[method-assign,assignment]


def _name(path: str) -> str:
    return os.path.join(_folder(os.path.dirname(path)), os.path.basename(path))


def _stamp(path: Path | str) -> _Stamp:
    about = os.stat(path)
    # The last of them cannot be set by a program.
    return about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _edited(name: str) -> ConfigError:
    return ConfigError(f"{name}: was edited while this job was about to run it", "run it again", may_pass=True)
