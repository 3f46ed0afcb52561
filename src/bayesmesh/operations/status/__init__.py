"""Show the progress of every experiment in one table, read from the store and the queue."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TextIO

from bayesmesh.operations.status.table import status_table
from bayesmesh.workflow.plan import Plan

__all__ = ["run", "status_table", "watch"]

EVERY_SECONDS = 5.0

_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or keep showing it; returns the exit code."""
    plan = Plan(is_partial=True)
    if arguments.watch:
        watch(lambda: status_table(plan))
    else:
        print(status_table(plan))
    return 0


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
