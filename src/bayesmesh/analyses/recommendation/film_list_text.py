"""Show a list of films for one user as a table of text, and write it as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.errors import ConfigError
from bayesmesh.files import write_text

COLUMNS = ("rank", "film_id", "title", "genres", "mean", "low", "high", "p_best", "p_top", "held_out")


class FilmList(NamedTuple):
    """A list of films for one user.

    Attributes:
        about: a sentence about user, draws and intervals.
        rows: the films, in order, with the columns `COLUMNS`.
        depth: of the column ``p_top``.
        warnings: reasons for doubt.
        value: heading of the listed values.
        item: what is rated or watched.
    """

    about: str
    rows: list[dict[str, Any]]
    depth: int
    warnings: tuple[str, ...]
    value: str = "watch probability"
    item: str = "film"


def as_text(found: FilmList) -> str:
    """Return a list as a table for a terminal."""
    if not found.rows:
        return f"{found.about}\nNo {found.item} is left to list."
    lines = [("", found.item, "genres", found.value, "", "best", f"top {found.depth}"), *map(_cells, found.rows)]
    if not any(row["genres"] for row in found.rows):
        lines = [(*line[:2], *line[3:]) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    is_text = [0 < place < len(widths) - 2 for place in range(len(widths))]
    aligned = [
        [
            cell.ljust(width) if left else cell.rjust(width)
            for cell, width, left in zip(cells, widths, is_text, strict=True)
        ]
        for cells in lines
    ]
    return "\n".join([found.about, *("  ".join(cells).rstrip() for cells in aligned)])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    mark = " (held out)" if row["held_out"] else ""
    return (
        str(row["rank"]), f"{row['title'] or row['film_id']}{mark}", row["genres"].replace("|", ", "),
        f"{row['mean']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}", f"{row['p_best']:.1%}", f"{row['p_top']:.1%}",
    )  # fmt: skip


def check_output_name(output: str | None) -> None:
    """Refuse a file that is neither CSV nor JSON."""
    if output is not None and not output.endswith((".csv", ".json")):
        raise ConfigError(f"--output {output}: neither .csv nor .json", "name a file with one of these endings")


def write_list(found: FilmList, output: str) -> None:
    """Write a list as CSV or JSON, depending on the file's extension, atomically."""
    if output.endswith(".json"):
        content = {"about": found.about, "warnings": found.warnings, "films": found.rows}
        write_text(Path(output), json.dumps(content, indent=2, ensure_ascii=False) + "\n")
        return
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found.rows)
    write_text(Path(output), buffer.getvalue())
