"""A configuration that status is asked about."""

from __future__ import annotations

from pathlib import Path

import pytest

from bayesmesh.operations.status import progress_table
from bayesmesh.planning.plan import Plan
from bayesmesh.running.slurm.queue import Queue

GOOD = (
    "title: A test\ndata: {source: gaussian}\nmodel: {name: gaussian}\nkernel: {name: hmc}\n"
    "sampling: {mode: independent, chains: 4, chain_groups: 2, warmup: 20, draws: 100}\n"
)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Three experiments, of which one is listed; no scheduler."""
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [listed]\n")
    for name in ("listed", "other", "begun"):
        (tmp_path / "config" / "experiments" / f"{name}.yaml").write_text(GOOD)
    monkeypatch.setattr(progress_table, "read_queue", lambda *_: Queue())
    return Plan(str(tmp_path / "config"), str(tmp_path / "results"))
