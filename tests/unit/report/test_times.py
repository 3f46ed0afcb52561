"""The time that is shown is that of the attempts that made the present results, as in a run in an empty folder."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.report.background import build_timing
from bayesmesh.report.times import (
    COLUMNS,
    OtherAttempts,
    Phase,
    TimeSpent,
    check_table,
    jobs_of,
    read_time,
    sampling_seconds,
    write_ledger,
)
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import Ledger

ANALYSES = ["average"]
ORIGIN = {"identity": "new", "groups": ["chains/new/group-000", "chains/new/group-001"]}

Rows = dict[str, float]


def attempt(layout: ExperimentLayout, job: str, rows: Rows, *, identity: str = "", is_finished: bool = True) -> None:
    ledger = Ledger(layout.ledger_part(job), job)
    ledger.identity = identity
    for phase, seconds in rows.items():
        ledger.add(phase, seconds, gradients=int(1000 * seconds) if phase == "sample" else 0)
    if is_finished:
        ledger.finish()
    ledger.save()


def undisturbed(layout: ExperimentLayout) -> None:
    for job, seconds in {"compile": 3.0, "assemble": 4.0, "diagnose": 5.0, "average": 6.0}.items():
        attempt(layout, job, {"start": 1.0, job: seconds})
    for group in range(2):
        attempt(
            layout, f"sample-group-00{group}", {"start": 1.0, "warmup": 20.0, "sample": 40.0 + group}, identity="new"
        )


def failed_job(layout: ExperimentLayout) -> None:
    undisturbed(layout)
    attempt(layout, "diagnose", {"start": 1.0, "diagnose": 70.0}, is_finished=False)
    attempt(layout, "sample-group-001", {"start": 1.0, "sample": 70.0}, identity="new", is_finished=False)


def other_chains(layout: ExperimentLayout) -> None:
    attempt(layout, "sample-group-000", {"start": 1.0, "warmup": 500.0, "sample": 600.0}, identity="old")
    undisturbed(layout)
    attempt(layout, "sample-group-001", {"start": 1.0, "warmup": 500.0, "sample": 600.0}, identity="newer")


def killed(layout: ExperimentLayout) -> None:
    attempt(layout, "sample-group-000", {"start": 9.0}, identity="", is_finished=False)
    undisturbed(layout)


def no_longer_asked(layout: ExperimentLayout) -> None:
    attempt(layout, "sample-group-002", {"start": 1.0, "warmup": 20.0, "sample": 40.0}, identity="new")
    attempt(layout, "recommend", {"start": 1.0, "recommend": 80.0})
    undisturbed(layout)


def run_again(layout: ExperimentLayout) -> None:
    attempt(layout, "sample-group-000", {"start": 1.0, "warmup": 20.0, "sample": 7.0}, identity="new")
    attempt(layout, "assemble", {"start": 1.0, "assemble": 99.0})
    attempt(layout, "report", {"report": 5.0})
    undisturbed(layout)


REASONS = {
    failed_job: [("diagnose", "failed, stopped or still running"), ("sample-group-001", "failed, stopped or still running")],
    other_chains: [("sample-group-000", "other chains"), ("sample-group-001", "other chains")],
    killed: [("sample-group-000", "failed, stopped or still running")],
    no_longer_asked: [(job, "not part of the present results") for job in ("recommend", "sample-group-002")],
    run_again: [(job, "replaced by a later run") for job in ("assemble", "sample-group-000")],
}  # fmt: skip


def figures(phases: list[Phase]) -> list[tuple[object, ...]]:
    return [(p.job, p.phase, p.seconds, p.gradients, p.identity) for p in phases]


@pytest.mark.parametrize("disturb", REASONS)
def test_the_figures_are_those_of_an_empty_folder(tmp_path: Path, disturb: Callable[[ExperimentLayout], None]) -> None:
    clean, disturbed = ExperimentLayout(tmp_path, "clean"), ExperimentLayout(tmp_path, "disturbed")
    undisturbed(clean)
    disturb(disturbed)
    expected, found = (read_time(layout, ANALYSES, ORIGIN) for layout in (clean, disturbed))
    assert figures(found.phases) == figures(expected.phases)
    assert sampling_seconds(found) == 20 + 40 + 20 + 41
    timings = [build_timing(time) or {} for time in (expected, found)]
    assert timings[0]["sentence"] == timings[1]["sentence"]
    assert timings[0]["rows"] == [(*row[:6], *timings[0]["rows"][n][6:]) for n, row in enumerate(timings[1]["rows"])]
    assert not expected.others
    assert not expected.missing
    assert sorted((each.job, each.reason) for each in found.others) == REASONS[disturb]


def test_attempts_that_do_not_count_are_added_up_by_reason(tmp_path: Path) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    for seconds in (1.0, 2.0):
        attempt(layout, "compile", {"queue": 100.0, "compile": seconds}, is_finished=False)
    time = read_time(layout, ANALYSES, ORIGIN)
    wanted = ["assemble", "average", "compile", "diagnose", "sample-group-000", "sample-group-001"]
    assert time == TimeSpent([], [OtherAttempts("compile", "failed, stopped or still running", 2, 3.0)], wanted)
    timing = build_timing(time)
    assert timing is not None
    assert timing["others"] == [("compile", "failed, stopped or still running", 2, "3.0 s")]
    assert build_timing(TimeSpent([], [], [])) is None


@pytest.mark.parametrize(("lost", "has_sampling"), [("sample-group-001", False), ("diagnose", True)])
def test_times_that_no_ledger_has_are_named(tmp_path: Path, lost: str, has_sampling: bool) -> None:
    """And the time of sampling is not that of the other groups."""
    layout = ExperimentLayout(tmp_path, "some")
    undisturbed(layout)
    layout.ledger_part(lost).unlink()
    time = read_time(layout, ANALYSES, ORIGIN)
    assert time.missing == [lost]
    assert math.isfinite(sampling_seconds(time)) == has_sampling
    timing = build_timing(time)
    assert timing is not None
    assert timing["sentence"].endswith(f"The times of {lost} are missing: no ledger has them.")


def test_ledger_joins_all_jobs(complete: ExperimentLayout, demo: object) -> None:
    groups = [f"chains/x/group-{k:03d}" for k in range(4)]
    origin = {"identity": demo.IDENTITY, "groups": groups}  # type: ignore[attr-defined]
    time = read_time(complete, [], origin)
    phases = time.phases
    write_ledger(complete, phases)
    rows = list(csv.DictReader(complete.ledger.read_text(encoding="utf-8").splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(phases) == 3 + 4 * 6 + 2
    assert sum(float(row["seconds"]) for row in rows if row["phase"] == "sample") == pytest.approx(58 + 59 + 60 + 61)
    assert {row["bytes"] for row in rows} == {"0", "188160000"}
    assert list(jobs_of(phases))[:2] == ["compile", "sample-group-000"]
    assert sampling_seconds(time) == pytest.approx(4 * 31 + 18 + 238)
    assert not list(check_table(complete))
    complete.ledger.write_text(complete.ledger.read_text(encoding="utf-8").replace("58.0", "5.8"), encoding="utf-8")
    (line,) = check_table(complete)
    assert "ledger.csv: differs" in line
