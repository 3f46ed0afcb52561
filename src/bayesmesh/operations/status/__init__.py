"""status: how far every experiment is, as one table; read from the store alone, while jobs run and after a crash."""

from __future__ import annotations

from bayesmesh.operations.status.progress_table import status_table
from bayesmesh.operations.status.watch import watch

__all__ = ["status_table", "watch"]
