"""The harness: turns, limits, isolated failures, memory of each contender, ratios of pairs."""

from __future__ import annotations

import csv
import logging
import math
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import StoreError
from bayesmesh_reproduction.benchmarks.harness import Case, Limits, Measurement, Options, Outcome, Ratio, compare, ratio
from bayesmesh_reproduction.benchmarks.history import add_row, write_outcome
from bayesmesh_reproduction.benchmarks.process import Contender, Ended, ask_once
from bayesmesh_reproduction.layout import BenchmarkLayout

TESTS = Path(__file__).resolve().parents[2]


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which contenders record their requests, and make their module importable."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "support"))
    return tmp_path / "record"


def fake(record: Path, name: str, **options: Any) -> Contender:
    return Contender(name, "contenders:Fake", {"name": name, "record": str(record), **options})


def cases(contenders: list[Contender], *sizes: int, series: str = "") -> list[Case]:
    return [Case({"n": n}, contenders, series) for n in sizes]


def test_contenders_take_turns_and_keep_their_process(record: Path) -> None:
    both = [fake(record, "a", seconds=0.002), fake(record, "b", seconds=0.001)]
    measured = compare(cases(both, 1, 2), Limits(rounds=2))
    of_a_case = ["a run 0", "b run 0", "a run 1", "b run 1"]
    assert record.read_text().splitlines() == [
        *("a prepare 1", "b prepare 1", *of_a_case),
        *("a prepare 2", "b prepare 2", *of_a_case),
    ]
    assert [(m.case["n"], m.contender, m.status, m.seconds) for m in measured] == [
        *((1, "a", "ok", [0.002] * 2), (1, "b", "ok", [0.001] * 2)),
        *((2, "a", "ok", [0.004] * 2), (2, "b", "ok", [0.002] * 2)),
    ]
    assert measured[0].facts["process"] == measured[2].facts["process"] != measured[1].facts["process"]


def test_the_time_limit_ends_only_the_slow_contender(record: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bayesmesh")
    slow, swift = fake(record, "slow", seconds=30), fake(record, "swift")
    begin = time.monotonic()
    measured = compare(cases([slow, swift], 1, 2, series="n"), Limits(rounds=2, run_s=0.3))
    assert time.monotonic() - begin < 10
    rows = [m.row() for m in measured]
    assert [(row["contender"], row["status"], row["rounds"]) for row in rows] == [
        *(("slow", "time limit", 0), ("swift", "ok", 2)),
        *(("slow", "time limit", 0), ("swift", "ok", 2)),
    ]
    assert (rows[0]["message"], rows[0]["median_s"]) == ("run: more than 0.3 s", "")
    assert rows[2]["message"] == "not run: a smaller case reached the limit"
    assert "slow prepare 2" not in record.read_text()
    assert "slow time limit (run: more than 0.3 s)" in caplog.text


@pytest.mark.parametrize(
    ("does", "status", "message"),
    [
        ("fail", "failed", "run: ValueError: the wrong kind of data"),
        ("exit", "failed", "run: not an answer"),
        ("killed", "memory", "run: killed by the system, as it does when memory runs out"),
    ],
)
def test_a_contender_that_fails_is_a_row_and_starts_again(record: Path, does: str, status: str, message: str) -> None:
    measured = compare(cases([fake(record, "bad", does=does), fake(record, "good")], 1, 2), Limits(rounds=2))
    assert [(m.contender, m.status) for m in measured] == [("bad", status), ("good", "ok")] * 2
    assert measured[0].message == message
    assert measured[0].facts["process"] != measured[2].facts["process"]


def test_a_contender_that_cannot_start_is_a_row(record: Path) -> None:
    nobody = Contender("nobody", "contenders:Nobody")
    (measured,) = compare(cases([nobody], 1), Limits())
    assert measured.status == "failed"
    assert "AttributeError" in measured.message
    assert math.isnan(measured.peak_mib)


def test_memory_is_measured_per_contender_and_case(record: Path) -> None:
    both = [fake(record, "large", does="hold"), fake(record, "small")]
    first, small, second, _ = compare(cases(both, 64, 1), Limits(rounds=1))
    assert 64 < first.peak_mib - small.peak_mib < 80
    assert second.peak_mib < small.peak_mib + 16


def test_memory_has_a_limit(record: Path) -> None:
    (measured,) = compare(cases([fake(record, "large", does="grow")], 1), Limits(rounds=1, memory_mib=100))
    assert measured.status == "memory"
    assert "more than 100" in measured.message
    assert measured.peak_mib > 100, "the peak when it was killed"


def test_the_time_of_a_case_is_bounded_after_the_least_rounds(record: Path) -> None:
    one = [fake(record, "a", seconds=0.02)]
    (measured,) = compare(cases(one, 1), Limits(rounds=50, case_s=0.0, least_rounds=3))
    assert len(measured.seconds) == 3
    own = Case({"n": 1}, one, limits=Limits(rounds=2))
    assert [len(m.seconds) for m in compare([own, *cases(one, 1)], Limits(rounds=1))] == [2, 1]


def test_ratios_are_of_pairs() -> None:
    def measured(name: str, *seconds: float) -> Measurement:
        return Measurement({"n": 3, "of": "x"}, name, seconds=list(seconds), facts={"ess_per_s": seconds[0]})

    both = [measured("ours", 1, 10, 2), measured("theirs", 3, 80, 4, 9)]
    found = ratio(both, {"n": 3}, "ours", against="theirs", least=2.5)
    assert (found.ratio, found.low, found.high, found.rounds) == (3, 2, 8, 3), "the median of 3, 8 and 2"
    assert found.verdict == "holds"
    assert found._replace(least=3.1).verdict == "failed"
    assert ratio(both, {"n": 3}, "theirs", against="ours", fact="ess_per_s").ratio == 3
    absent = ratio(both, {"n": 4}, "ours", against="theirs", least=1.0)
    assert math.isnan(absent.ratio)
    assert absent.verdict == "failed", "an unmeasured ratio fails"


def test_tables_hold_the_newest_run_and_the_history_all_runs(tmp_path: Path) -> None:
    def outcome(seconds: float) -> Outcome:
        one = Measurement({"n": 3}, "ours", seconds=[seconds], facts={"ess": 5.0}, peak_mib=9.0)
        return Outcome([one.row()], [Ratio("n 3", "ours", "theirs", 2.0, 1.0, 3.0, 3, 1.5)], ("ess",))

    layout = BenchmarkLayout(tmp_path)
    for seconds in (1.0, 2.0):
        write_outcome(layout, "b", outcome(seconds))
    (row,) = csv.DictReader(layout.table("b").read_text().splitlines())
    assert (row["contender"], row["median_s"], row["ess"]) == ("ours", "2.0", "5.0")
    assert "core" in row["machine"]
    (judged,) = csv.DictReader(layout.ratios("b").read_text().splitlines())
    assert (judged["ratio"], judged["verdict"]) == ("2.0", "holds")
    kept = list(csv.DictReader(layout.history.read_text().splitlines()))
    assert [(r["case"], r["contender"], r["metric"], r["value"]) for r in kept if r["metric"] == "median_s"] == [
        *(("n 3", "ours", "median_s", "1.0"), ("n 3", "ours", "median_s", "2.0"))
    ]
    assert len(kept) == 8


def test_a_damaged_history_is_set_aside_and_an_incomplete_line_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    layout = BenchmarkLayout(tmp_path)
    outcome = Outcome([Measurement({"n": 3}, "ours", seconds=[1.0]).row()])
    write_outcome(layout, "b", outcome)
    whole = layout.history.read_text()
    layout.history.write_text(whole + "2026,b,n 3,ours,medi")
    write_outcome(layout, "b", outcome)
    lines = layout.history.read_text().splitlines()
    assert len(lines) == 2 * len(whole.splitlines())  # one header less, half a line more
    assert "2026,b,n 3,ours,medi" in lines, "the next line starts after the incomplete one"
    layout.history.write_bytes(b"\xff\xfe no table")
    write_outcome(layout, "b", outcome)
    assert layout.history.read_text().splitlines()[0] == lines[0]
    (aside,) = layout.folder.glob("history.damaged-*")
    assert aside.read_bytes() == b"\xff\xfe no table"
    assert f"kept as {aside.name}" in caplog.text


def test_a_row_is_added_to_a_table_unless_it_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks" / "writing.csv"
    add_row(path, {"a": 1})
    add_row(path, {"a": 2})
    assert [r["a"] for r in csv.DictReader(path.read_text().splitlines())] == ["1", "2"]
    path.write_text(path.read_text() + "1,2,3,4,5,6,7,8,9\n")
    with pytest.raises(StoreError):
        add_row(path, {"a": 3})


def test_a_trial_does_not_replace_the_tables_of_the_workflow(tmp_path: Path) -> None:
    outcome = Outcome([Measurement({"n": 3}, "ours", seconds=[1.0]).row()])
    write_outcome(BenchmarkLayout(tmp_path), "b", outcome)
    before = BenchmarkLayout(tmp_path).table("b").read_bytes()
    write_outcome(BenchmarkLayout(tmp_path, is_trial=True), "b", outcome, is_quick=True)
    assert BenchmarkLayout(tmp_path).table("b").read_bytes() == before
    assert sorted(p.name for p in (tmp_path / "benchmarks").glob("b*.csv")) == [
        "b-quick.csv", "b-ratios-quick.csv", "b-ratios.csv", "b.csv"
    ]  # fmt: skip


def test_a_gate_with_a_reason_fails() -> None:
    good = Ratio("n 3", "ours", "theirs", 2.0, 1.0, 3.0, 3, 1.5)
    assert good.verdict == "holds"
    assert good._replace(reason="theirs: failed").verdict == "failed"


def test_versions_are_those_of_the_imports_of_the_contender(record: Path) -> None:
    (measured,) = compare(cases([fake(record, "a")], 1), Limits(rounds=1))
    assert measured.versions.startswith("python 3.")
    assert "bayesmesh" not in measured.versions, "the fake imports none"


def test_ask_once_reports_a_failure(record: Path) -> None:
    with pytest.raises(Ended, match="failed: prepare: ModuleNotFoundError"):
        ask_once(Contender("a", "bayesmesh.no_such:Thing"), {}, 60.0)
    assert ask_once(fake(record, "a"), {"n": 1}, 60.0) is not None


def test_a_contender_ends_with_its_parent(record: Path, tmp_path: Path) -> None:
    """Even during a run, and although it has its own session."""
    code = (
        "import sys\nfrom bayesmesh_reproduction.benchmarks.process import Contender, Process\n"
        f"process = Process(Contender('a', 'contenders:Fake', {{'record': {str(record)!r}, 'name': 'a', 'seconds': 600}}))\n"
        "process.ask({'do': 'prepare', 'case': {'n': 1}}, 60)\nprint(process._process.pid, flush=True)\n"
        "process.ask({'do': 'run', 'repeat': 0}, 600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as asks:
        assert asks.stdout is not None
        worker = os.pidfd_open(int(asks.stdout.readline()))
        asks.kill()
        assert select.select([worker], [], [], 60)[0], "the contender is still running"
        os.close(worker)


def test_options_pick_sizes_and_limits() -> None:
    assert Options(is_quick=True).pick((10, 1000), quick=(10,)) == (10,)
    assert Options(seconds_limit=3).limits(rounds=7) == Limits(rounds=7, run_s=3)
