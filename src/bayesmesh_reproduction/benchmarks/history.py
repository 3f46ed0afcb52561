"""Write tables of benchmarks: the newest run, and a history of all runs."""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from bayesmesh.analyses.figures.documents import read_csv, render_csv
from bayesmesh.files import atomic_folder, write_text
from bayesmesh.store.machine import machine_name
from bayesmesh.store.records.jobs import record_outputs
from bayesmesh_reproduction.benchmarks.harness import Outcome, Ratio, describe_case
from bayesmesh_reproduction.benchmarks.worker import version_line
from bayesmesh_reproduction.layout import BenchmarkLayout

_log = logging.getLogger("bayesmesh")

HISTORY = ("measured_at", "benchmark", "case", "contender", "metric", "value", "machine", "versions")
"""Columns of the history."""


def add_row(path: Path, row: Mapping[str, object]) -> None:
    """Add a row to a CSV file, with the time, the machine and the versions of the measurement.

    New columns stay empty in earlier rows.

    Raises:
        StoreError: the file is damaged.
    """
    versions = {name: version(name) for name in ("bayesmesh", "jax", "jaxlib")}
    earlier: list[Mapping[str, object]] = [each.cells for each in read_csv(path, ())] if path.exists() else []
    rows = [*earlier, {**row, "measured_at": _now(), "machine": platform.machine(), **versions}]
    _write(path, rows, rows[::-1])


def write_rows(path: Path, rows: Iterable[Mapping[str, object]], draws: Iterable[Path] = ()) -> None:
    """Replace an additional table of a benchmark, with time, machine and versions, and its record.

    Args:
        path: the table, in the folder of benchmarks.
        rows: its rows.
        draws: stores that were written for it.
    """
    about = _about()
    rows = [{**row, **about} for row in rows]
    _write(path, rows, rows)
    record_outputs(path.parent.parent, path.parent.name, path.stem, [path, *draws])


def write_store(path: Path, arrays: Mapping[str, np.ndarray], dims: tuple[str, ...]) -> None:
    """Replace a Zarr store of a benchmark, which `write_rows` records.

    Args:
        path: the store, in the folder of benchmarks.
        arrays: name -> array of the group ``posterior``.
        dims: dimensions of every array.
    """
    # The rules read this module through `planning`, which must not import Zarr.
    from bayesmesh.store.arrays import open_group, write_array

    with atomic_folder(path) as partial:
        group = open_group(partial, "w").create_group("posterior")
        for name, values in arrays.items():
            write_array(group, name, values, dims)


def write_outcome(
    layout: BenchmarkLayout, name: str, outcome: Outcome, *, is_quick: bool = False, code: str = ""
) -> None:
    """Replace the tables of a benchmark by a new run's, and add its values to the history.

    Args:
        layout: files of the benchmarks.
        name: name of the benchmark.
        outcome: result of the run.
        is_quick: whether it ran with small sizes.
        code: fingerprint of its code.
    """
    about = _about()
    # A contender of another environment reports versions of its own.
    rows = [{**row, **about, "versions": row.get("versions") or about["versions"]} for row in outcome.rows]
    _write(layout.table(name), rows, rows)
    ratios = [{"benchmark": name, **r._asdict(), "verdict": r.verdict, **about} for r in outcome.ratios]
    columns = ["benchmark", *Ratio._fields[:-1], "verdict", "reason", *about]
    _write(layout.ratios(name), ratios, [dict.fromkeys(columns)])
    outputs = [layout.table(name), layout.ratios(name), *outcome.files]
    record_outputs(layout.results, layout.folder.name, layout.table(name).stem, outputs, code, is_quick=is_quick)
    first, last = (about["measured_at"], name), (about["machine"], about["versions"])
    metrics = ("median_s", "peak_mib", *outcome.metrics)
    values = [(row, metric, row[metric]) for row in rows for metric in metrics if row.get(metric) not in ("", None)]
    history = [(*first, _case(r), r["contender"], m, value, last[0], r["versions"]) for r, m, value in values]
    history += [(*first, r.case, r.contender, f"ratio to {r.against}", r.ratio, *last) for r in outcome.ratios]
    _append(layout.history, history)


def _about() -> dict[str, str]:
    return {"measured_at": _now(), "machine": machine_name(), "versions": version_line()}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _case(row: Mapping[str, object]) -> str:
    """Return the case of a row: the columns before the contender."""
    names = list(row)
    return describe_case({name: row[name] for name in names[: names.index("contender")]})


def _append(path: Path, rows: Sequence[Sequence[object]]) -> None:
    """Append rows to the history, also while other runs write to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = render_csv(HISTORY, []).encode()
    if path.exists():
        with path.open("rb") as begun:
            is_ours = begun.readline() in (header, b"")
        if not is_ours:
            kept = path.rename(path.with_suffix(f".damaged-{time.strftime('%Y%m%d-%H%M%S')}"))
            _log.warning("%s is not a table of benchmarks: kept as %s; a new table begins", path, kept.name)
    with path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        content = render_csv(HISTORY, rows).encode()
        if end := handle.seek(0, os.SEEK_END):
            handle.seek(end - 1)
            # A killed writer may have left an incomplete line.
            content = (b"" if handle.read(1) == b"\n" else b"\n") + content.removeprefix(header)
        handle.write(content)


def _write(path: Path, rows: Sequence[Mapping[str, object]], like: Iterable[Mapping[str, object]]) -> None:
    """Write rows with the columns of `like`, in their order."""
    columns = list(dict.fromkeys(name for row in like for name in row))
    write_text(path, render_csv(columns, ([row.get(column) for column in columns] for row in rows)))
