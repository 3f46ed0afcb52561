"""Files that a source declares are compared by content, those of a mirror only where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pydantic
import pytest
import yaml

from bayesmesh.store.records.files import MIRROR_VARIABLE, InputFiles
from bayesmesh.store.records.jobs import changed_files, read_record, stamp_files, write_record
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import condition_of, why_lost

LARGE = "0123456789" * 150_000
"""Too large to be compared by content where size and time are the same."""


class _Fetch(Job):
    patterns: dict[str, tuple[str, ...]] = pydantic.Field({"data.files": ("own.csv",)})
    mirror: tuple[str, ...] = ("m/*.gz",)

    @property
    def outputs(self) -> tuple[Path, ...]:
        return (self.results / "data/d/fetched.json",)

    @property
    def files(self) -> InputFiles:
        return InputFiles(self.patterns, self.mirror)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job that has read a file of the project and one of the mirror."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MIRROR_VARIABLE, str(tmp_path / "mirror"))
    for name, text in {"mirror/m/a.gz": "a", "own.csv": LARGE, "results/data/d/fetched.json": "{}"}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    results = Path("results")
    job = _Fetch(stage="fetch", experiment="data", results=results, config={})
    made_from = {
        "job": "fetch",
        "specification": "",
        "code": "",
        "inputs": {},
        "files": stamp_files(job.files.find()),
    }
    write_record(job.record, results, job.outputs, made_from)
    assert set(read_record(job.record).files) == {"own.csv", "$BAYESMESH_MIRROR/m/a.gz"}
    return job


def test_unchanged_files_keep_the_results(job: Job) -> None:
    Path("own.csv").touch()
    assert why_lost(job) == ""


@pytest.mark.parametrize("name", ["own.csv", "mirror/m/a.gz"])
def test_another_content_of_the_same_size_is_noticed(job: Job, name: str) -> None:
    Path(name).write_text(Path(name).read_text().replace("0", "9").replace("a", "b"))
    assert why_lost(job).startswith(f"was made from another {Path(name)}".replace("mirror", str(Path.cwd() / "mirror")))


def test_only_a_thorough_look_reads_large_files_whose_size_and_time_are_the_same(job: Job) -> None:
    about = os.stat("own.csv")
    Path("own.csv").write_text(LARGE.replace("0", "9"))
    os.utime("own.csv", ns=(about.st_atime_ns, about.st_mtime_ns))
    assert why_lost(job) == ""
    lines = list(changed_files(job.results, read_record(job.record), is_thorough=True))
    assert lines == ["was made from another own.csv than the present one"]


def test_a_missing_file_is_named(job: Job) -> None:
    Path("own.csv").unlink()
    assert "own.csv: no such file" in why_lost(job)
    assert list(changed_files(job.results, read_record(job.record))) == ["was made from own.csv, which is missing now"]


def test_other_patterns_name_other_files(job: Job) -> None:
    Path("more.csv").write_text("x")
    more = job.model_copy(update={"patterns": {"data.files": ("*.csv",)}, "mirror": ()})
    assert why_lost(more) == "more.csv: was not there when fetch read the others"
    fewer = job.model_copy(update={"patterns": {"data.files": ("more.csv",)}, "mirror": ()})
    assert "more.csv" in why_lost(fewer)
    Path("more.csv").unlink()
    none = job.model_copy(update={"patterns": {}, "mirror": ()})
    assert why_lost(none) == "own.csv: is no longer among the files that fetch reads"


@pytest.mark.parametrize("mirror", ["", "elsewhere"])
def test_results_do_not_depend_on_having_a_mirror(job: Job, mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("elsewhere").mkdir()
    monkeypatch.setenv(MIRROR_VARIABLE, mirror)
    assert why_lost(job) == ""


def test_a_copy_of_the_mirror_is_as_good(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("copy/m").mkdir(parents=True)
    monkeypatch.setenv(MIRROR_VARIABLE, "copy")
    Path("copy/m/a.gz").write_text("a")
    assert why_lost(job) == ""
    Path("copy/m/a.gz").write_text("b")
    assert why_lost(job) == "was made from another copy/m/a.gz than the present one"


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
        return condition_of(plan.jobs_of("some")).older

    assert older(plan.job("fetch", "some").digest, code) == ""
    assert older("other settings", code) == "fetch"
    for earlier in ("0" + code[1:], "0123456789abcdef"):
        assert older("other settings", earlier) == "fetch, of an earlier version of bayesmesh"
