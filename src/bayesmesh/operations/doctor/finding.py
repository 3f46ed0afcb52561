"""The result of a check."""

from __future__ import annotations

import dataclasses
import functools
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

OK = "ok"
WARNS = "warns"
BLOCKS = "BLOCKS"

Row = tuple[str, ...]
"""The fields of a finding after its group."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        group: group of checks.
        name: what was checked.
        seen: what was found.
        state: `OK`; `WARNS` if a run may still work as intended; `BLOCKS` if none can.
        remedy: how to fix the problem; given unless the state is `OK`.
    """

    group: str
    name: str
    seen: str
    state: str = OK
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.state == OK) == bool(self.remedy):
            raise ValueError(f"{self.name}: give a remedy if and only if the state is not OK")


Check = Callable[[Path, Mapping[str, str], Path], list[Finding]]
"""Arguments: folder of results, which may not exist yet; environment variables; folder of the configuration."""


def group(name: str) -> Callable[[Callable[[Path, Mapping[str, str], Path], Iterator[Row]]], Check]:
    """Return a decorator that turns a function that yields rows of one group into a check."""

    def decorate(rows: Callable[[Path, Mapping[str, str], Path], Iterator[Row]]) -> Check:
        @functools.wraps(rows)
        def check(results: Path, environ: Mapping[str, str], config: Path) -> list[Finding]:
            return [Finding(name, *row) for row in rows(results, environ, config)]

        return check

    return decorate


def ask(
    command: Sequence[str], environ: Mapping[str, str], timeout: float = 5.0
) -> subprocess.CompletedProcess[str] | None:
    """Run a command and return its result; None if the command does not exist or hangs.

    Args:
        command: the program, looked up on the PATH, and its arguments.
        environ: its environment.
        timeout: seconds to wait; clients of a scheduler that is down wait for minutes.
    """
    try:
        return subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
