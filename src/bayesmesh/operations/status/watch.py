"""status: refresh the table on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["EVERY_SECONDS", "watch"]

EVERY_SECONDS = 5.0

_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def watch(table: Callable[[], str], *, every: float = EVERY_SECONDS, out: TextIO | None = None) -> None:
    """Show a table repeatedly until Ctrl-C, or once if the output is not a terminal.

    Args:
        table: returns the text of the table.
        every: seconds between refreshes.
        out: output stream; standard output by default.
    """
    out = sys.stdout if out is None else out
    if not out.isatty():
        print(table(), file=out)
        return
    try:
        while True:
            # Compute before clearing, so that the screen is never empty.
            text = table()
            print(
                f"{_HOME_AND_CLEAR}{text}\n\n{time.strftime('%H:%M:%S')}, refreshed every {every:.0f} s, Ctrl-C ends",
                file=out,
            )
            out.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        print(file=out)
