"""What sampling asks of a scheduler follows what the compile stage measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.errors import StoreError
from bayesmesh.workflow.resources import (
    BASE_MEMORY_MB,
    BASE_MINUTES,
    SampleJob,
    sample_memory_mb,
    sample_minutes,
)
from bayesmesh.workflow.site import Nodes

JOB = SampleJob(Nodes(max_memory_mb=10_000, max_minutes=100), stop_minutes=0)
EXPERIMENT = ExperimentBase.model_validate({"title": "A test", "sampling": {"warmup": 1000, "draws": 2000}})


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.json"


def _write(audit: Path, *, peak: float, seconds: float, data: int = 1) -> None:
    content: dict[str, Any] = {
        "devices": {"platform": "cpu", "mesh": {"chain": 1, "data": data}},
        "gradient": {"seconds": seconds, "per_draw": 10.0},
        "programs": {"warmup": {"memory": {"peak": peak / 2}}, "sample": {"memory": {"peak": peak}}},
    }
    audit.write_text(json.dumps(content))


def test_memory_follows_the_program_on_all_devices(audit: Path) -> None:
    _write(audit, peak=1e9, seconds=0)
    assert sample_memory_mb(audit, 1, JOB) == BASE_MEMORY_MB + 1500
    _write(audit, peak=1e9, seconds=0, data=2)
    assert sample_memory_mb(audit, 1, JOB) == BASE_MEMORY_MB + 3000


def test_memory_is_that_of_one_node(audit: Path) -> None:
    _write(audit, peak=1e9, seconds=0, data=4)
    assert sample_memory_mb(audit, 1, JOB._replace(num_nodes=2)) == BASE_MEMORY_MB + 3000
    assert sample_memory_mb(audit, 1, JOB._replace(num_nodes=3)) == BASE_MEMORY_MB + 3000


def test_time_follows_gradients(audit: Path) -> None:
    # 3,000 iterations of ten gradients of 10 ms are 5 minutes.
    _write(audit, peak=0, seconds=0.01)
    assert sample_minutes(audit, 1, JOB, EXPERIMENT) == BASE_MINUTES + 10


def test_a_job_that_is_told_to_stop_before_its_time_is_up_has_the_same_time_to_work(audit: Path) -> None:
    _write(audit, peak=0, seconds=0.01)
    stopped = JOB._replace(stop_minutes=7)
    assert [sample_minutes(audit, n, stopped, EXPERIMENT) for n in (1, 2, 9)] == [27, 47, 100]


def test_both_grow_with_each_attempt_up_to_the_limit(audit: Path) -> None:
    _write(audit, peak=1e9, seconds=0.01)
    assert [sample_memory_mb(audit, n, JOB) for n in (1, 2, 3)] == [3500, 7000, 10_000]
    assert [sample_minutes(audit, n, JOB, EXPERIMENT) for n in (1, 2, 9)] == [20, 40, 100]


def test_an_audit_that_is_not_there_is_asked_for_again(audit: Path) -> None:
    """Snakemake leaves open what raises this, until the file is there."""
    """By name, or Snakemake would not know that a job is going to make it."""
    with pytest.raises(FileNotFoundError) as memory:
        sample_memory_mb(audit, 1, JOB)
    with pytest.raises(FileNotFoundError) as minutes:
        sample_minutes(audit, 1, JOB, EXPERIMENT)
    assert memory.value.filename == minutes.value.filename == str(audit)


def test_an_audit_with_nothing_in_it_is_named_with_a_remedy(audit: Path) -> None:
    audit.write_text("{}")
    with pytest.raises(StoreError, match=r"audit\.json: is damaged: devices, .*\n  remedy: delete it and run the com"):
        sample_memory_mb(audit, 1, JOB)
