"""A configuration that status is asked about, and chains of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.operations import status
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.slurm.queue import Queue

NOW = 1_800_000_000.0
SEGMENT = 10

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
    monkeypatch.setattr(status, "read_queue", lambda *_: Queue())
    return Plan(str(tmp_path / "config"), str(tmp_path / "results"))


@pytest.fixture
def sample(plan: Plan) -> Callable[..., ChainStore]:
    """Return a function that commits segments of a group, one a second, the last of them 5 s ago."""

    def commit(name: str = "listed", group: int = 0, draws: int = 30, identity: str = "0" * 16) -> ChainStore:
        folder = plan.layout(name).group(identity, group)
        store = ChainStore(folder, SEGMENT, {"identity": identity, "environment": {"kind": "a card"}})
        random = np.random.default_rng(group)
        total = 2 + draws // SEGMENT
        for number in range(total):
            phase, start = ("warmup", SEGMENT * number) if number < 2 else ("sample", SEGMENT * (number - 2))
            facts = {
                "acceptance": 0.8, "committed_at": NOW - 5 - (total - 1 - number), "count": SEGMENT, "seconds": 1.0,
                "host": "node3",
            }  # fmt: skip
            stats = {
                "warmup_sample_stats" if phase == "warmup" else "sample_stats": {"lp": random.normal(size=(SEGMENT, 2))}
            }
            store.commit(phase, start, stats, {"q": np.zeros(2)}, facts)
        return store

    return commit
