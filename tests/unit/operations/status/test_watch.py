"""status --watch: the table again and again on a terminal, once elsewhere; looking writes nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from bayesmesh.operations.status import status_table, watch
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.workflow.plan import Plan


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_watching_shows_it_again_until_ctrl_c() -> None:
    calls = []

    def made() -> str:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return f"table {len(calls)}"

    out = Terminal()
    watch(made, every=0, out=out)
    assert "table 1" in out.getvalue()
    assert "table 2" in out.getvalue()


def test_looking_changes_nothing(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    for group in (0, 1):
        sample(group=group, draws=90)
    root = Path(plan.results).parent
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    status_table(plan)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
