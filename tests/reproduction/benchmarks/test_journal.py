"""Finished cases of a benchmark that was killed are found again, and nothing else."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bayesmesh_reproduction.benchmarks import harness
from bayesmesh_reproduction.benchmarks.harness import Case, Limits, Measurement, compare
from bayesmesh_reproduction.benchmarks.journal import Journal
from bayesmesh_reproduction.benchmarks.process import Contender

ONE = Contender("one", "bayesmesh_reproduction.benchmarks.compile_scaling:Uncompiled")
CASES = [Case({"n": n}, [ONE]) for n in (1, 2)]


def _measure(monkeypatch: pytest.MonkeyPatch, *, dies_at: int = 0) -> list[int]:
    """Replace measuring; it fails at a case, as if killed. Returns the list of measured cases."""
    seen: list[int] = []

    def run_case(pool: object, case: Case, measured: list[tuple[Contender, Measurement]], limits: Limits) -> None:
        if case.values["n"] == dies_at:
            raise KeyboardInterrupt
        seen.append(int(str(case.values["n"])))
        for _, m in measured:
            m.seconds, m.facts, m.peak_mib = [0.5], {"value": case.values["n"]}, 7.0

    monkeypatch.setattr(harness, "_run_case", run_case)
    return seen


def test_a_killed_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "benchmarks" / "x.jsonl"
    _measure(monkeypatch, dies_at=2)
    with pytest.raises(KeyboardInterrupt):
        compare(CASES, Limits(), Journal(path))
    with path.open("a") as file:
        file.write('{"key": "half a li')
    seen = _measure(monkeypatch)
    journal = Journal(path)
    measured = compare(CASES, Limits(), journal)
    assert seen == [2]
    assert [m.facts["value"] for m in measured] == [1, 2]
    assert measured[0] == dataclasses.replace(measured[1], case={"n": 1}, facts={"value": 1})
    journal.forget()
    assert not path.exists()


@pytest.mark.parametrize(
    ("case", "limits"),
    [
        (Case({"n": 3}, [ONE]), Limits()),
        (Case({"n": 1}, [ONE._replace(options={"arm": "x"})]), Limits()),
        (Case({"n": 1}, [ONE, ONE]), Limits()),
        (Case({"n": 1}, [ONE]), Limits(rounds=9)),
        (Case({"n": 1}, [ONE._replace(work="bayesmesh_reproduction.benchmarks.primer:Other")]), Limits()),
    ],
)
def test_other_cases_are_measured(case: Case, limits: Limits, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.jsonl")
    about = (CASES[0].values, CASES[0].contenders, Limits()._asdict())
    journal.add(*about, [{"contender": "one"}])
    assert journal.find(*about) == [{"contender": "one"}]
    assert journal.find(case.values, case.contenders, limits._asdict()) is None
