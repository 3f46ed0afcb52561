"""A number that no run computed turns a claim red, however it came into the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.analyses.averaging import average as averaging
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.records.jobs import check_output, find_record, record_file
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, NOT_RUN, Finding
from bayesmesh_reproduction.claims.recomputation import accuracy_again as softmax_accuracy
from bayesmesh_reproduction.claims.results import Reading, Results

NAME = "small"
Judge = Callable[..., Finding]
Rerun = Callable[[ExperimentLayout], None]
SCORES = f"{NAME}/averaging/scores.csv"


def last_accuracy(results: Results) -> Reading:
    return results.rows(SCORES).last().only("average_accuracy")


def accuracy_again(results: Results) -> Reading:
    return softmax_accuracy(results, NAME, "average")


def judge_accuracy(judged: Judge, layout: ExperimentLayout) -> Finding:
    return judged(layout.results, "statistical", last_accuracy, "0.1", tolerance=0.2, again=accuracy_again)


def edit(path: Path, column: str, value: str) -> None:
    header, *rows = path.read_text().splitlines()
    place = header.split(",").index(column)
    cells = rows[-1].split(",")
    cells[place] = value
    path.write_text("\n".join([header, *rows[:-1], ",".join(cells)]) + "\n")


def test_a_number_of_a_run_holds_and_says_where_it_comes_from(averaged: ExperimentLayout, judged: Judge) -> None:
    finding = judge_accuracy(judged, averaged)
    assert (finding.verdict, finding.reason) == (HOLDS, "")
    assert finding.ours.value == pytest.approx(finding.again, abs=1e-9)
    assert finding.ours.file == SCORES
    record = find_record(averaged.results, averaged.results / SCORES)
    assert (finding.ours.machine, finding.ours.written_at) == (record.machine, record.written_at)
    assert {Path(name).name for name in record.inputs} == {"posterior.zarr", "sharded.json"}


def test_a_table_that_was_edited_fails(averaged: ExperimentLayout, judged: Judge) -> None:
    edit(averaged.results / SCORES, "average_accuracy", "0.1")
    finding = judge_accuracy(judged, averaged)
    assert finding.verdict == FAILED
    assert finding.reason.startswith(f"{SCORES}: has been altered")


def test_a_result_that_code_returns_without_computing_it_fails(
    averaged: ExperimentLayout, judged: Judge, rerun: Rerun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage itself writes the published number, with a record that fits: its draws give another."""
    scored = averaging.score_probabilities
    monkeypatch.setattr(averaging, "score_probabilities", lambda *a: scored(*a)._replace(accuracy=0.25))
    rerun(averaged)
    check_output(averaged.results, averaged.results / SCORES, is_thorough=True)
    finding = judge_accuracy(judged, averaged)
    assert finding.verdict == FAILED
    assert "says 0.25" in finding.reason
    assert "gives 0.0" in finding.reason or "gives 0.1" in finding.reason


def test_scores_of_other_draws_than_are_stored_fail(
    averaged: ExperimentLayout, judged: Judge, redraw: Callable[..., None]
) -> None:
    redraw(averaged, seed=2)
    finding = judge_accuracy(judged, averaged)
    assert (finding.verdict, "was made from another" in finding.reason) == (FAILED, True)


def test_draws_that_were_edited_fail(averaged: ExperimentLayout, judged: Judge) -> None:
    chunk = next(path for path in (averaged.posterior / "posterior/weights").rglob("c/**/*") if path.is_file())
    chunk.write_bytes(chunk.read_bytes() + b"\0")
    finding = judge_accuracy(judged, averaged)
    assert (finding.verdict, "has been altered" in finding.reason) == (FAILED, True)


def test_a_table_without_record_or_draws_fails_and_one_that_is_not_there_has_not_run(
    averaged: ExperimentLayout, judged: Judge
) -> None:
    record = record_file(averaged.results, NAME, "average")
    kept = record.rename(record.with_suffix(".kept"))
    assert judge_accuracy(judged, averaged).verdict == FAILED
    kept.rename(record)
    averaged.posterior.rename(averaged.folder / "elsewhere")
    finding = judge_accuracy(judged, averaged)
    assert (finding.verdict, "of which nothing is known now" in finding.reason) == (FAILED, True)
    (averaged.results / SCORES).unlink()
    finding = judge_accuracy(judged, averaged)
    assert (finding.verdict, finding.ours, finding.reason) == (NOT_RUN, None, f"{SCORES} is not there")
