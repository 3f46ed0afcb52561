"""Show the progress of every experiment in one table, read from the store and the queue."""

from __future__ import annotations

import argparse

from bayesmesh.operations.status.progress_table import status_table
from bayesmesh.operations.status.watch import watch
from bayesmesh.planning.plan import Plan

__all__ = ["run", "status_table", "watch"]


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or keep showing it; returns the exit code."""
    plan = Plan()
    if arguments.watch:
        watch(lambda: status_table(plan))
    else:
        print(status_table(plan))
    return 0
