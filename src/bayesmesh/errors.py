"""The family of errors that a user can cause, and how they are printed.

Every message says what happened, where (file, key or row) and what to do. The command line prints it without a
traceback and exits with ``exit_code``.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "ConfigError",
    "DataError",
    "DeviceError",
    "NotFinished",
    "PeerError",
    "StoreError",
    "UserError",
    "explain_os_error",
    "suggest",
]


class UserError(Exception):
    """A mistake or a circumstance that the user can mend.

    Args:
        message: What happened, naming the file and the key or row.
        remedy: What to do about it; may hold lines of YAML or a command.

    Attributes:
        is_abrupt: the process is to leave at once: devices, or other processes, are busy with what nobody waits for.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str = "", *, is_abrupt: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.is_abrupt = is_abrupt

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message


class ConfigError(UserError):
    """The configuration is wrong; nothing was started."""

    exit_code = 2


class DataError(UserError):
    """A data file is missing, damaged or not what its source declares."""

    exit_code = 3


class DeviceError(UserError):
    """The devices that the experiment asks for are not there."""

    exit_code = 4


class StoreError(UserError):
    """Something under ``results/`` is damaged or belongs to another run."""

    exit_code = 5


class PeerError(UserError):
    """Another process of the same run failed, went away or did not come."""

    exit_code = 6


class NotFinished(UserError):
    """The job was asked to stop before its work was done; what is done is committed, and it wants to be run again."""

    exit_code = 75


_CIRCUMSTANCES = {
    errno.ENOSPC: "free some space and run it again: what is committed stays, and it goes on from there",
    errno.EDQUOT: "the quota is used up; free some space and run it again: what is committed stays, and it goes on from there",
    errno.EROFS: "choose a folder that can be written, or have the file system mounted for writing",
    errno.EACCES: "see who may read and write it",
    errno.EPERM: "see who may read and write it",
    errno.ESTALE: "the network file system lost it; run it again",
    errno.EIO: "the disk or the network file system fails; run it again, elsewhere if need be",
}


def explain_os_error(error: OSError) -> UserError | None:
    """Return what a user can do about a full disk, a folder without permission and the like; None for other errors."""
    if error.errno not in _CIRCUMSTANCES:
        return None
    names = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    # A hidden file is a temporary one, which a user never sees: its folder is where it could not be written.
    where = next(
        (p for p in names if not p.name.startswith(".")), names[0].parent if names else "a file of the results"
    )
    return StoreError(f"{where}: {error.strerror}", _CIRCUMSTANCES[error.errno])


def suggest(name: str, valid: Iterable[str]) -> str:
    """Return a sentence with the nearest valid name, or with all of them.

    >>> suggest("chese", ["chees", "hmc"])
    "did you mean 'chees'? valid: chees, hmc"
    """
    names = sorted(valid)
    listed = "valid: " + ", ".join(names)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean '{near[0]}'? {listed}" if near else listed
