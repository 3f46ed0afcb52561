"""What a check says."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["BLOCKS", "OK", "WARNS", "Finding", "ask"]

OK = "ok"
WARNS = "warns"
BLOCKS = "BLOCKS"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of the table.

    Attributes:
        group: group of checks.
        name: what was looked at.
        seen: what was found.
        state: `OK`, `WARNS` where a run may still be what was meant, `BLOCKS` where none can be.
        remedy: what to do; given unless the state is `OK`.
    """

    group: str
    name: str
    seen: str
    state: str = OK
    remedy: str = ""

    def __post_init__(self) -> None:
        if (self.state == OK) == bool(self.remedy):
            raise ValueError(f"{self.name}: a problem has a remedy, and nothing else has one")


def ask(
    command: Sequence[str], environ: Mapping[str, str], timeout: float = 5.0
) -> subprocess.CompletedProcess[str] | None:
    """Return what a command said; None when there is no such command, or it hangs.

    Args:
        command: words; looked up on the PATH.
        environ: its environment.
        timeout: seconds to wait; a scheduler that is down lets its clients wait for minutes.
    """
    try:
        return subprocess.run(
            command, env=dict(environ), capture_output=True, text=True, timeout=timeout, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
