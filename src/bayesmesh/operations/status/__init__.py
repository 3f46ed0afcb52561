"""Show the progress of every experiment in one table, read from the store and the queue."""

from __future__ import annotations

from bayesmesh.operations.status.progress_table import status_table
from bayesmesh.operations.status.watch import watch

__all__ = ["status_table", "watch"]
