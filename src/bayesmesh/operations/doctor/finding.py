"""The result of a check, and commands of other programs that checks run."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping, Sequence

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
