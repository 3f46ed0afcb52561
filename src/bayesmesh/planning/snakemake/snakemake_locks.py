"""Let the same command continue a workflow whose Snakemake was killed.

Snakemake locks the files of a run by listing them in `.snakemake/locks`, and cannot tell whether the writer of such a list
still runs: after a kill, every run is refused until `snakemake --unlock`. Here each list begins with its owner, and one
whose owner has died on this machine is ignored. Jobs that outlive their Snakemake hold locks of their own.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from snakemake.persistence.file import FilePersistence

from bayesmesh.store.lock import Owner, is_process_there, owner_name, this_process

_OWNER = "owner: "
_write = FilePersistence._write_locks
_log = logging.getLogger("bayesmesh")


def ignore_abandoned_locks() -> None:
    """Let Snakemake name the owner in its locks, and ignore the locks of dead owners."""
    FilePersistence._write_locks = _write_locks
    FilePersistence._read_locks = _read_locks


def _write_locks(self: FilePersistence, lock_type: str, keys: Iterable[str]) -> None:
    # First, so that a truncated list has it too.
    if names := list(keys):
        _write(self, lock_type, [_OWNER + json.dumps(this_process()), *names])


def _read_locks(self: FilePersistence) -> Iterator[tuple[str, str]]:
    dead = set()
    for path in sorted(Path(self._lockdir).glob("*.lock")):
        lines = path.read_text(encoding="utf-8").splitlines()
        # A list truncated after its owner locks nothing.
        is_owned = len(lines) > 1 and lines[0].startswith(_OWNER)
        owner: Owner = json.loads(lines[0].removeprefix(_OWNER)) if is_owned else {}
        # None, unknown, for an owner on another machine or before the last boot.
        if is_owned and is_process_there(owner) is False:
            dead.add(owner_name(owner))
        else:
            yield from ((path.name.split(".")[1], line) for line in lines)
    for name in sorted(dead):
        _log.warning("going on where Snakemake was killed: ignoring the lock of %s", name)
