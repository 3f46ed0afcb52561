"""Every table of two small experiments equals the one on file, unless the version of its stage is raised."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from workspace import Workspace

FOLDER = Path(__file__).with_name("golden_tables")
REWRITE = "REWRITE_GOLDENS=1 .venv/bin/python -m pytest -q tests/workflow/test_golden_tables.py"

STAGES = {"diagnostics": "DIAGNOSE", "averaging": "ANALYSE", "recommendations": "ANALYSE"}
"""Folder of tables -> the version to raise."""

MEASURED = {"efficiency.csv"}
"""Tables of times, which differ from run to run."""

OF_RANKS = {"r_hat", "ess_bulk", "ess_tail"}
"""Columns and gates that jump where two draws change places, which are so close that rounding orders them, and processors round differently."""

NUMBER = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?")

MOST_ROWS = 40


def tables(results: Path) -> dict[str, Path]:
    """Return the tables of all experiments by their path below the results."""
    found = [p for kind in ("csv", "json") for folder in STAGES for p in results.glob(f"*/{folder}/*.{kind}")]
    shown = (path for path in sorted(found) if path.name not in MEASURED)
    return {path.relative_to(results).as_posix(): path for path in shown}


def read(path: Path) -> str:
    """Return a table, of a long one its first rows."""
    text = path.read_text(encoding="utf-8")
    return "".join(text.splitlines(keepends=True)[:MOST_ROWS]) if path.suffix == ".csv" else text


def cells(path: Path) -> Iterator[tuple[str, str]]:
    """Yield place and text of every cell of a table, or of every value of a JSON file."""
    text = read(path)
    if path.suffix == ".json":
        yield from values(json.loads(text), "")
        return
    names, *rows = csv.reader(text.splitlines())
    yield from ((f"column {number}", name) for number, name in enumerate(names))
    for number, row in enumerate(rows):
        yield from ((f"row {number}, {name}", cell) for name, cell in zip(names, row, strict=True))


def values(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of every value of a JSON value; entries of a list that have names go by these."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if entries is None:
        yield place, str(value)
    for key, each in entries or ():
        yield from values(each, f"{place}/{each.get('name', key) if isinstance(each, dict) else key}")


def is_same(place: str, one: str, other: str) -> bool:
    """Return whether two cells are equal: numbers to 1e-6, those of ranks to 1%, also within texts, and labels exactly."""
    is_of_ranks = not OF_RANKS.isdisjoint(re.split("[/, ]+", place))
    texts, found = NUMBER.split(one), NUMBER.split(other)
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    tolerance = 1e-2 if is_of_ranks else 1e-6
    is_close = (math.isclose(float(x), float(y), rel_tol=tolerance, abs_tol=1e-9) for x, y in numbers)
    return one == other or (texts == found and all(is_close))


@pytest.mark.parametrize("name", sorted(tables(FOLDER)) or ["none"])
def test_a_table_is_the_one_on_file(completed: Workspace, name: str) -> None:
    known, found = dict(cells(FOLDER / name)), dict(cells(completed.results / name))
    differences = [f"{place}: {known.get(place)} before, {found.get(place)} now" for place in known | found
                   if not is_same(place, known.get(place, ""), found.get(place, ""))]  # fmt: skip
    assert not differences, (
        f"{name}: {differences[:3]}. If that is intended, raise {STAGES[name.split('/')[1]]} in"
        f" src/bayesmesh/config/versions.py, so that results of users are made again, and run\n  {REWRITE}"
    )


def test_every_table_is_on_file(completed: Workspace) -> None:
    found = tables(completed.results)
    if "REWRITE_GOLDENS" in os.environ:
        for name, path in found.items():
            (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (FOLDER / name).write_text(read(path), encoding="utf-8")
    assert found.keys() == tables(FOLDER).keys(), f"add the others with\n  {REWRITE}"
