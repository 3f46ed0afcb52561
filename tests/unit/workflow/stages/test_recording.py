"""A job is recorded only by success, alone, and with inputs that stay as they are."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bayesmesh.errors import StoreError
from bayesmesh.store.records.jobs import read_record
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.recording import recorded


class _Job(Job):
    reads: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Path, ...]:
        return tuple(self.layout.folder / f"{each}.csv" for each in self.reads)

    @property
    def outputs(self) -> tuple[Path, ...]:
        return (self.layout.folder / f"{self.stage}.csv",)


def _job(results: Path, name: str, inputs: tuple[str, ...] = ()) -> Job:
    job = _Job(stage=name, experiment="toy", results=results, config={}, reads=inputs)
    job.layout.folder.mkdir(exist_ok=True)
    return job


def _run(job: Job, text: str, code: str = "c") -> None:
    with recorded(job, code):
        job.declared.write_text(text)


def test_a_record_says_what_the_output_was_made_from(tmp_path: Path) -> None:
    _run(_job(tmp_path, "first"), "1")
    second = _job(tmp_path, "second", ("first",))
    _run(second, "2")
    record, source = read_record(second.record), read_record(_job(tmp_path, "first").record)
    assert (record.job, record.specification, record.code) == ("second", second.digest, "c")
    assert record.inputs == {"toy/first.csv": source.digest("toy/first.csv")}
    assert list(record.outputs) == ["toy/second.csv"]


def test_a_failed_job_leaves_the_record_of_the_last_run(tmp_path: Path) -> None:
    job = _job(tmp_path, "first")
    _run(job, "1")
    with pytest.raises(RuntimeError), recorded(job, "other"):
        raise RuntimeError("stop")
    assert read_record(job.record).code == "c"
    _run(job, "3", "other")
    assert read_record(job.record).code == "other"


def test_an_altered_input_is_refused_before_the_job_runs(tmp_path: Path) -> None:
    _run(_job(tmp_path, "first"), "1")
    (tmp_path / "toy" / "first.csv").write_text("9")
    with (
        pytest.raises(StoreError, match=r"first.csv: has been altered"),
        recorded(_job(tmp_path, "second", ("first",)), "c"),
    ):
        pytest.fail("ran")


def test_an_input_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    first, second = _job(tmp_path, "first"), _job(tmp_path, "second", ("first",))
    _run(first, "1")
    with contextlib.ExitStack() as running:
        running.enter_context(pytest.raises(StoreError, match=r"first.csv: was replaced while second read it"))
        running.enter_context(recorded(second, "c"))
        _run(first, "2")
        second.declared.write_text("from 1")
    assert not second.record.exists()


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    job = _job(tmp_path, "first")
    with recorded(job, "c"):
        with pytest.raises(StoreError, match=r"is being written by process"), recorded(job, "c"):
            pytest.fail("ran")
        job.declared.write_text("1")
