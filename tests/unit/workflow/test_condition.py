"""Results that an earlier version of the package made are named as such."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from bayesmesh.store.records.jobs import write_record
from bayesmesh.workflow.condition import condition_of
from bayesmesh.workflow.plan import Plan


def test_a_record_of_another_version_is_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = {
        "title": "Some",
        "data": {"source": "digits"},
        "model": {"name": "gaussian"},
        "kernel": {"name": "hmc"},
    }
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [some]\n")
    (tmp_path / "config" / "experiments" / "some.yaml").write_text(yaml.safe_dump(experiment))
    plan = Plan()
    job, code = plan.job("fetch", "some"), plan.code_of_stage("fetch", "some")
    for path in job.outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")

    def older(specification: str, code: str) -> str:
        made_from = {"job": job.name, "specification": specification, "code": code, "inputs": {}}
        write_record(job.record, job.results, job.outputs, made_from)
        return condition_of(plan, "some").older

    assert older(plan.job("fetch", "some").digest, code) == ""
    assert older("other settings", code) == "fetch"
    for earlier in ("0" + code[1:], "0123456789abcdef"):
        assert older("other settings", earlier) == "fetch, of an earlier version of bayesmesh"
