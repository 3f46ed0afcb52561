"""status: progress and convergence of chain groups while they run."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bayesmesh.errors import ConfigError
from bayesmesh.operations.status import status_table
from bayesmesh.operations.status.chains import log_density_so_far, read_group
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.workflow.plan import Plan


def test_r_hat_so_far_sees_chains_apart(plan: Plan, sample: Callable[..., ChainStore]) -> None:
    groups = [read_group(sample(group=g).folder) for g in (0, 1)]
    found = log_density_so_far(groups)
    folder = plan.layout("other").group("0" * 16, 0)
    store = ChainStore(folder, 30, {"identity": "0" * 16})
    far = 9 + np.random.default_rng(2).normal(size=(30, 2))
    store.commit(
        "sample",
        0,
        {"sample_stats": {"lp": far}},
        {},
        {"acceptance": 1.0, "committed_at": 1_800_000_000.0, "count": 30, "seconds": 1.0},
    )
    bad = log_density_so_far([*groups, read_group(folder)])
    assert found is not None
    assert bad is not None
    assert found[0] < 1.2 < 1.5 < bad[0]


def test_code_that_cannot_be_read_stays_in_the_row_of_its_experiment(
    plan: Plan, sample: Callable[..., ChainStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    sample()
    ChainStore(plan.layout("other").group("0" * 16, 0), 30, {"identity": "0" * 16})
    jobs_of = plan.jobs_of

    def refuse(name: str) -> Any:
        if name == "listed":
            raise ConfigError("mine.py, line 1: invalid Python", "correct the line")
        return jobs_of(name)

    monkeypatch.setattr(plan, "jobs_of", refuse)
    said = status_table(plan)
    assert re.findall(r"^(listed|other) +(\w+)", said, re.M)[0] == ("listed", "unreadable")
    assert re.search(r"^other +(?!unreadable)\w", said, re.M)
    assert "listed: mine.py, line 1: invalid Python\n  remedy: correct the line" in said
