"""The family of errors that a user can cause, and how they are printed.

A message says what happened, where (file, key or row) and how to fix it. The command line prints it without a
traceback and exits with ``exit_code``.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

NOT_AGAIN = "another attempt would end in the same way"
"""Last line in the log of a job that failed with an error whose `UserError.may_pass` is not set."""


MOST_NAMES = 100
"""Maximum number of valid names that a suggestion lists."""


class UserError(Exception):
    """An error that the user can fix.

    Args:
        message: What happened, naming the file and the key or row.
        remedy: How to fix it; may contain lines of YAML or a command.

    Attributes:
        is_abrupt: whether to end the process without cleanup, because devices or other processes may still be busy.
        may_pass: whether another attempt may succeed even if the user changes nothing.
    """

    exit_code = 1
    may_pass = False

    def __init__(self, message: str, remedy: str = "", *, is_abrupt: bool = False, may_pass: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.is_abrupt = is_abrupt
        self.may_pass = may_pass or type(self).may_pass

    def __str__(self) -> str:
        return f"{self.message}\n  remedy: {self.remedy}" if self.remedy else self.message

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows, without a traceback; IPython calls it."""
        return [f"{type(self).__name__}: {self}"]


class ConfigError(UserError):
    """The configuration is invalid; nothing was started."""

    exit_code = 2


@contextlib.contextmanager
def locating(where: str) -> Iterator[None]:
    """Put a file and a key before the message of a `ConfigError` that is raised within."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", error.remedy) from error


class DataError(UserError):
    """A data file is missing, damaged or different from what its source declares."""

    exit_code = 3


class DeviceError(UserError):
    """The devices that the experiment requests are not available."""

    exit_code = 4


class StoreError(UserError):
    """Something under ``results/`` is damaged or belongs to another run."""

    exit_code = 5


class PeerError(UserError):
    """Another process of the same run failed, disappeared or did not join."""

    exit_code = 6
    may_pass = True


class SamplingError(UserError):
    """Sampling has ended early, because more draws would be useless; committed draws are kept."""

    exit_code = 7


class NotFinished(UserError):
    """The job was asked to stop before its work was done; finished work is committed, and another run continues it."""

    exit_code = 75
    may_pass = True


_MISPLACED = "move away what lies in its place, a folder, a file or a link, and run it again"

_CIRCUMSTANCES = {
    errno.ENOSPC: "free some space and run it again: it continues from the last commit",
    errno.EDQUOT: "the quota is exhausted; free some space and run it again: it continues from the last commit",
    errno.EROFS: "choose a writable folder, or have the file system mounted for writing",
    errno.EACCES: "check the permissions of the file and its folder",
    errno.EPERM: "check the permissions of the file and its folder",
    errno.ESTALE: "the network file system lost the file; run it again",
    errno.EISDIR: _MISPLACED,
    errno.ENOTDIR: _MISPLACED,
    errno.ELOOP: _MISPLACED,
    errno.EIO: "the disk or the network file system has errors; run it again, on another file system if necessary",
}


class InternalError(UserError):
    """An error inside Bayesmesh or a library, which no line of the user has raised."""

    exit_code = 70


def explain_os_error(error: OSError | MemoryError, place: str = "") -> UserError | None:
    """Return a user error for a full disk, too little memory, a missing permission and the like; None for other errors.

    Args:
        error: the exception.
        place: file and line of the user's code that wanted too much memory, if any.
    """
    if isinstance(error, MemoryError):
        said = f"{place}: this machine or job has not enough memory: {error}".strip(": ")
        # Later attempts request more memory.
        return DeviceError(
            said, "use fewer rows, chains or draws, or a machine or a job with more memory", may_pass=True
        )
    if error.errno not in _CIRCUMSTANCES:
        return None
    names = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    # A hidden file is one of our temporary files: name its folder, which the user knows.
    where = next(
        (p for p in names if not p.name.startswith(".")), names[0].parent if names else "a file of the results"
    )
    return StoreError(f"{where}: {error.strerror}", _CIRCUMSTANCES[error.errno], may_pass=True)


_STAMP = r"(?:\d\d:\d\d:\d\d )?"


def last_error(said: str) -> UserError | None:
    """Return the error with which the log of a job ends; None if it ends otherwise.

    >>> last_error("12:00:00 fetch data\\n12:00:01 error: data.csv, row 1: not a number\\n  remedy: correct it\\n")
    UserError('data.csv, row 1: not a number')
    >>> last_error("12:00:00 error: one try\\n12:00:01 done\\n") is None
    True
    """
    text = re.sub(rf"\n{_STAMP}{re.escape(NOT_AGAIN)}\s*$", "", said).rstrip()
    found = re.split(rf"^{_STAMP}error: ", text, flags=re.MULTILINE)
    if len(found) == 1 or re.search(r"^\d\d:\d\d:\d\d ", found[-1], re.MULTILINE):
        return None
    message, _, remedy = found[-1].partition("\n  remedy: ")
    return UserError(message, remedy)


def suggest(name: str, valid: Iterable[str], *, alike: float = 0.5) -> str:
    """Return a sentence with the nearest valid name, if any is at least so `alike`, and all valid names, if there are any.

    >>> suggest("chese", ["chees", "hmc"])
    "did you mean 'chees'? valid: chees, hmc"
    >>> suggest("NUTS", ["hmc", "nuts"])
    "did you mean 'nuts'? valid: hmc, nuts"
    >>> suggest("scale", [])
    'there are none: leave it out'
    """
    names = sorted(valid)
    if not names:
        return "there are none: leave it out"
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    listed = "valid: " + ", ".join(names[:MOST_NAMES]) + more
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=alike)
    return f"did you mean '{folded[near[0]]}'? {listed}" if near else listed
