"""Tables of benchmarks: every run adds its rows, so that a later one shows the change."""

from __future__ import annotations

import csv
import io
import platform
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bayesmesh.store.files import write_text

__all__ = ["add_row"]


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a CSV file, with when, where and with which versions it was measured.

    Columns that an earlier run did not have stay empty in its rows.
    """
    about = {
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": platform.machine(),
        **{name: version(name) for name in ("bayesmesh", "jax", "jaxlib")},
    }
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
    rows.append({**row, **about})
    columns = list(dict.fromkeys(name for r in reversed(rows) for name in r))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
