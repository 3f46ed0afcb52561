"""How much is verified, and the table at the end of `make verify-samplers`.

`make test` runs what is not marked. `BAYESMESH_VERIFY=1` adds the tests marked `verify`, `BAYESMESH_NIGHTLY=1` those
marked `nightly` as well. A test records what it measured and what it allows with `record`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

IS_NIGHTLY = os.environ.get("BAYESMESH_NIGHTLY") == "1"
IS_VERIFYING = IS_NIGHTLY or os.environ.get("BAYESMESH_VERIFY") == "1"
LEFT_OUT = {"verify": not IS_VERIFYING, "nightly": not IS_NIGHTLY}
"""Marker -> whether its tests are left out of this run."""

_ROWS: dict[str, tuple[str, str, str, float]] = {}
"""Test -> outcome, what was measured, what is allowed, seconds."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the larger tests."""
    left_out = [item for item in items if any(LEFT_OUT.get(mark.name) for mark in item.iter_markers())]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    """Return a function of what a test measured and what it allows, for the table."""

    def add(measured: str, allowed: str) -> None:
        record_property("measured", measured)
        record_property("allowed", allowed)

    return add


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep the row of a test, or of a fixture that failed."""
    if report.when == "call" or report.failed:
        said = dict(report.user_properties)
        outcome = "pass" if report.passed else "FAIL"
        _ROWS[report.nodeid] = (outcome, str(said.get("measured", "")), str(said.get("allowed", "")), report.duration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line per test that recorded something or failed, and one per other module."""
    if not IS_VERIFYING:
        return
    own = {test: row for test, row in _ROWS.items() if row[1] or row[0] == "FAIL"}
    modules: dict[str, list[tuple[str, str, str, float]]] = {}
    for test in _ROWS.keys() - own.keys():
        modules.setdefault(test.partition("::")[0], []).append(_ROWS[test])
    counted = {
        name: ("pass", f"{len(rows)} tests", "all pass", sum(r[3] for r in rows)) for name, rows in modules.items()
    }
    terminalreporter.section("samplers")
    for test, (outcome, measured, allowed, seconds) in sorted({**own, **counted}.items()):
        module, _, case = test.partition("::test_")
        name = f"{Path(module).stem.removeprefix('test_')}: {case.replace('_', ' ')}" if case else module
        terminalreporter.write_line(f"{outcome}  {seconds:6.1f} s  {name}  {measured}  [{allowed}]")
