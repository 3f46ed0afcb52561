"""What sampling asks of a scheduler follows what the compile stage measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.experiment.experiment import ExperimentBase
from bayesmesh.experiment.resources import BASE_MEMORY_MB, BASE_MINUTES, sample_memory_mb, sample_minutes
from bayesmesh.experiment.site import GpuNodes, Nodes, Site

SITE = Site(cpu=Nodes(max_memory_mb=10_000, max_minutes=100), gpu=GpuNodes(max_memory_mb=50_000, max_minutes=1000))
EXPERIMENT = ExperimentBase.model_validate({"title": "A test", "sampling": {"warmup": 1000, "draws": 2000}})


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    return tmp_path / "audit.json"


def _write(audit: Path, *, peak: float, seconds: float, platform: str = "cpu", data: int = 1) -> None:
    content: dict[str, Any] = {
        "devices": {"platform": platform, "mesh": {"chain": 1, "data": data}},
        "gradient": {"seconds": seconds, "per_draw": 10.0},
        "programs": {"warmup": {"memory": {"peak": peak / 2}}, "sample": {"memory": {"peak": peak}}},
    }
    audit.write_text(json.dumps(content))


def test_memory_follows_the_program_on_all_devices(audit: Path) -> None:
    _write(audit, peak=1e9, seconds=0)
    assert sample_memory_mb(audit, 1, SITE) == BASE_MEMORY_MB + 1500
    _write(audit, peak=1e9, seconds=0, data=2)
    assert sample_memory_mb(audit, 1, SITE) == BASE_MEMORY_MB + 3000


def test_time_follows_gradients(audit: Path) -> None:
    # 3,000 iterations of ten gradients of 10 ms are 5 minutes.
    _write(audit, peak=0, seconds=0.01)
    assert sample_minutes(audit, 1, SITE, EXPERIMENT) == BASE_MINUTES + 10


def test_both_grow_with_each_attempt_up_to_the_limit_of_the_kind_of_node(audit: Path) -> None:
    _write(audit, peak=1e9, seconds=0.01)
    assert [sample_memory_mb(audit, n, SITE) for n in (1, 2, 3)] == [3500, 7000, 10_000]
    assert [sample_minutes(audit, n, SITE, EXPERIMENT) for n in (1, 2, 9)] == [20, 40, 100]
    _write(audit, peak=1e9, seconds=0.01, platform="gpu")
    assert sample_memory_mb(audit, 9, SITE) == 31_500
    assert sample_minutes(audit, 9, SITE, EXPERIMENT) == 180


def test_an_audit_that_is_not_there_is_asked_for_again(audit: Path) -> None:
    """Snakemake leaves open what raises this, until the file is there."""
    """By name, or Snakemake would not know that a job is going to make it."""
    with pytest.raises(FileNotFoundError) as memory:
        sample_memory_mb(audit, 1, SITE)
    with pytest.raises(FileNotFoundError) as minutes:
        sample_minutes(audit, 1, SITE, EXPERIMENT)
    assert memory.value.filename == minutes.value.filename == str(audit)


def test_an_audit_with_nothing_in_it_is_named_with_a_remedy(audit: Path) -> None:
    audit.write_text("{}")
    with pytest.raises(
        StoreError, match=r"audit\.json: is damaged: no devices, .*\n  remedy: delete it and run the com"
    ):
        sample_memory_mb(audit, 1, SITE)
