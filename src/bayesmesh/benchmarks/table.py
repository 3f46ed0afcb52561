"""Tables of benchmarks: the newest run, and a history in which a later run shows the change."""

from __future__ import annotations

import csv
import io
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bayesmesh.benchmarks.harness import Outcome
from bayesmesh.benchmarks.versions import version_line
from bayesmesh.store.files import write_text
from bayesmesh.store.layout import BenchmarkLayout
from bayesmesh.store.machine import machine_name
from bayesmesh.store.receipts import write_receipts

__all__ = ["add_row", "write_outcome", "write_rows"]


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a CSV file, with when, where and with which versions it was measured.

    Columns that an earlier run did not have stay empty in its rows.
    """
    about = {
        "measured_at": _now(),
        "machine": platform.machine(),
        **{name: version(name) for name in ("bayesmesh", "jax", "jaxlib")},
    }
    rows = _read(path)
    rows.append({**row, **about})
    _write(path, rows, list(dict.fromkeys(name for r in reversed(rows) for name in r)))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], inputs: Iterable[Path] = ()) -> None:
    """Replace a further table of a benchmark, with when, where and with which versions it was made, and its receipt.

    Args:
        path: of the table, in the folder of benchmarks.
        rows: of it.
        inputs: files below the results that it was made of.
    """
    about = {"measured_at": _now(), "machine": machine_name(), "versions": version_line()}
    _write(
        path, [{**row, **about} for row in rows], list(dict.fromkeys(name for row in rows for name in [*row, *about]))
    )
    write_receipts(path.parent.parent, f"benchmark table {path.stem}", [path], inputs)


def write_outcome(layout: BenchmarkLayout, name: str, outcome: Outcome, *, is_quick: bool = False) -> None:
    """Replace the tables of a benchmark by a new run's, and add its values to the history.

    Args:
        layout: where.
        name: of the benchmark.
        outcome: what it found.
        is_quick: whether it ran with small sizes.
    """
    about = {"measured_at": _now(), "machine": machine_name(), "versions": version_line()}
    rows = [{**row, **about} for row in outcome.rows]
    _write(layout.table(name), rows, list(dict.fromkeys(column for row in rows for column in row)))
    ratios = [{"benchmark": name, **r._asdict(), "verdict": r.verdict, **about} for r in outcome.ratios]
    columns = ["benchmark", "case", "contender", "against", "ratio", "low", "high", "rounds", "least", "verdict"]
    _write(layout.ratios(name), ratios, [*columns, *about])
    job, tables = f"benchmark {name}", [layout.table(name), layout.ratios(name)]
    write_receipts(layout.results, job, outcome.files, is_quick=is_quick)
    write_receipts(layout.results, job, tables, outcome.files, is_quick=is_quick)
    kept = [
        {"benchmark": name, "case": _case(row), "contender": row["contender"], "metric": metric, "value": row[metric]}
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
    history = ["measured_at", "benchmark", "case", "contender", "metric", "value", "machine", "versions"]
    _write(layout.history, [*_read(layout.history), *({**row, **about} for row in kept)], history)


def _case(row: Mapping[str, Any]) -> str:
    """The case of a row: what stands before its contender."""
    names = list(row)
    return ", ".join(f"{name} {row[name]}" for name in names[: names.index("contender")])


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle))


def _write(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
