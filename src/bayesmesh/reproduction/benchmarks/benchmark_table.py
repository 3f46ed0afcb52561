"""Write tables of benchmarks: the newest run, and a history of all runs."""

from __future__ import annotations

import csv
import fcntl
import io
import logging
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from bayesmesh.files import write_text
from bayesmesh.reproduction.benchmarks.harness import Outcome, Ratio
from bayesmesh.reproduction.benchmarks.versions import version_line
from bayesmesh.running.machine import machine_name
from bayesmesh.store.layout import BenchmarkLayout
from bayesmesh.store.receipts import write_receipts

__all__ = ["add_row", "write_outcome", "write_rows"]

_log = logging.getLogger("bayesmesh")

HISTORY = ("measured_at", "benchmark", "case", "contender", "metric", "value", "machine", "versions")
"""Columns of the history."""


def add_row(path: Path, row: Mapping[str, object]) -> None:
    """Add a row to a CSV file, with the time, the machine and the versions of the measurement.

    New columns stay empty in earlier rows.
    """
    about = {
        "measured_at": _now(),
        "machine": platform.machine(),
        **{name: version(name) for name in ("bayesmesh", "jax", "jaxlib")},
    }
    rows = _read(path)
    rows.append({**row, **about})
    _write(path, rows, list(dict.fromkeys(name for r in reversed(rows) for name in r)))


def write_rows(path: Path, rows: Sequence[Mapping[str, object]], inputs: Iterable[Path] = ()) -> None:
    """Replace an additional table of a benchmark, with time, machine and versions, and its receipt.

    Args:
        path: the table, in the folder of benchmarks.
        rows: its rows.
        inputs: its input files, below the results.
    """
    about = {"measured_at": _now(), "machine": machine_name(), "versions": version_line()}
    _write(
        path, [{**row, **about} for row in rows], list(dict.fromkeys(name for row in rows for name in [*row, *about]))
    )
    write_receipts(path.parent.parent, f"benchmark table {path.stem}", [path], inputs)


def write_outcome(layout: BenchmarkLayout, name: str, outcome: Outcome, *, is_quick: bool = False) -> None:
    """Replace the tables of a benchmark by a new run's, and add its values to the history.

    Args:
        layout: files of the benchmarks.
        name: name of the benchmark.
        outcome: result of the run.
        is_quick: whether it ran with small sizes.
    """
    about = {"measured_at": _now(), "machine": machine_name(), "versions": version_line()}
    rows = [_with(row, about) for row in outcome.rows]
    _write(layout.table(name), rows, list(dict.fromkeys(column for row in rows for column in row)))
    ratios = [{"benchmark": name, **r._asdict(), "verdict": r.verdict, **about} for r in outcome.ratios]
    _write(layout.ratios(name), ratios, ["benchmark", *Ratio._fields[:-1], "verdict", "reason", *about])
    job, tables = f"benchmark {name}", [layout.table(name), layout.ratios(name)]
    write_receipts(layout.results, job, outcome.files, is_quick=is_quick)
    write_receipts(layout.results, job, tables, outcome.files, is_quick=is_quick)
    kept = [
        {
            "benchmark": name,
            "case": _case(row),
            "contender": row["contender"],
            "metric": metric,
            "value": row[metric],
            "versions": row["versions"],
        }
        for row in outcome.rows
        for metric in ("median_s", "peak_mib", *outcome.metrics)
        if row.get(metric) not in ("", None)
    ]
    kept += [
        {
            "benchmark": name,
            "case": r.case,
            "contender": r.contender,
            "metric": f"ratio to {r.against}",
            "value": r.ratio,
        }
        for r in outcome.ratios
    ]
    _append(layout.history, [_with(row, about) for row in kept])


def _with(row: Mapping[str, object], about: Mapping[str, object]) -> dict[str, object]:
    """Return a row with time, machine and, if known, the versions of its contender."""
    return {**row, **about, "versions": row.get("versions") or about["versions"]}


def _case(row: Mapping[str, object]) -> str:
    """Return the case of a row: the columns before the contender."""
    names = list(row)
    return ", ".join(f"{name} {row[name]}" for name in names[: names.index("contender")])


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _read(path: Path) -> list[dict[str, object]]:
    """Return the rows of a table, none without a table; a damaged table is moved aside."""
    if not path.exists():
        return []
    try:
        with path.open(encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
    except (UnicodeDecodeError, csv.Error):
        _set_aside(path)
        return []
    # csv puts cells without a column under None.
    if any(None in row for row in rows):
        _set_aside(path)
        return []
    return rows


def _append(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """Append rows to the history, also while other runs write to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = _text([], HISTORY).encode()
    if path.exists():
        with path.open("rb") as begun:
            is_ours = begun.readline() in (header, b"")
        if not is_ours:
            _set_aside(path)
    with path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = _text(rows, HISTORY).encode()
        if end := handle.seek(0, os.SEEK_END):
            handle.seek(end - 1)
            # A killed writer may have left an incomplete line.
            content = (b"" if handle.read(1) == b"\n" else b"\n") + content.removeprefix(header)
        handle.write(content)


def _set_aside(path: Path) -> None:
    kept = path.with_suffix(f".damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    path.rename(kept)
    _log.warning("%s is no table that a benchmark wrote: kept as %s, and begun anew", path, kept.name)


def _write(path: Path, rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> None:
    write_text(path, _text(rows, columns))


def _text(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
