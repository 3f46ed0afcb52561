"""Verdicts of all kinds of claim, on tables with records; and the table and page of claims."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesmesh.store.machine import machine_name
from bayesmesh_reproduction.claims.declaration import CLAIMS, Check
from bayesmesh_reproduction.claims.judge import (
    FAILED,
    HOLDS,
    MEASURED,
    NOT_RUN,
    Finding,
    judge_all,
    matches_digits,
    write_findings,
)  # fmt: skip
from bayesmesh_reproduction.claims.recomputation import recompute
from bayesmesh_reproduction.claims.results import Reading, Results
from bayesmesh_reproduction.layout import ReproductionLayout
from bayesmesh_reproduction.pages.claims import write_claims_page
from recording import record_as

Judge = Callable[..., Finding]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A table whose column y is x squared, with a row that met a limit, and a JSON file."""
    folder = tmp_path / "results"
    folder.mkdir()
    table, verdict = folder / "table.csv", folder / "verdict.json"
    rows = [f"ours,{x},{x * x},cpu,ok" for x in (1, 10, 100)]
    table.write_text(
        "\n".join(["who,x,y,device,status", *rows, "theirs,1,7,H200,ok", "theirs,10,,H200,time limit"]) + "\n"
    )
    verdict.write_text('{"gates": [{"value": 0.5}, {"value": null}]}')
    record_as(folder, "", "test", [table, verdict])
    return folder


def y_of(who: str, x: float | None = None, column: str = "y") -> Check:
    where = {"who": who} if x is None else {"who": who, "x": x}
    return lambda results: results.rows("table.csv", **where).only(column)


def value_of(*keys: str | int) -> Check:
    return lambda results: results.value("verdict.json", *keys)


def test_a_time_is_measured_and_shows_both_machines(results: Path, judged: Judge) -> None:
    finding = judged(results, "hardware", y_of("theirs", 1), "14")
    assert (finding.verdict, finding.ours.value, finding.ratio) == (MEASURED, 7.0, 0.5)
    assert finding.ours.machine == f"H200; {machine_name()}"
    ratio = judged(results, "hardware", lambda r: y_of("theirs", 1)(r) / y_of("ours", 10)(r), "2")
    assert ratio.ours.value == pytest.approx(0.07)


def test_a_row_that_met_a_limit_or_is_not_there_has_not_run(results: Path, judged: Judge) -> None:
    finding = judged(results, "hardware", y_of("theirs", 10), "1")
    assert (finding.verdict, finding.reason) == (NOT_RUN, "time limit")
    assert judged(results, "hardware", y_of("nobody"), "1").verdict == NOT_RUN
    assert judged(results, "hardware", value_of("gates", 1, "value"), "1").verdict == NOT_RUN


def test_a_quick_run_is_no_evidence(results: Path, judged: Judge) -> None:
    record_as(results, "", "test", [results / "table.csv"], is_quick=True)
    finding = judged(results, "hardware", y_of("theirs", 1), "14")
    assert (finding.verdict, "quick run" in finding.reason) == (NOT_RUN, True)


def test_a_trend_holds_or_fails(results: Path, judged: Judge) -> None:
    def slope(found: Results) -> Reading:
        return found.rows("table.csv", who="ours").slope("y", "x")

    def spread(found: Results) -> Reading:
        return found.rows("table.csv", who="ours").spread("y")

    assert judged(results, "shape", slope, "grows", at_least=1.9).verdict == HOLDS
    finding = judged(results, "shape", slope, "flat", at_most=1.1)
    assert (finding.verdict, finding.reason) == (FAILED, "2 is above 1.1")
    finding = judged(results, "shape", spread, "flat", at_most=1.5)
    assert (finding.verdict, finding.ours.value) == (FAILED, 1e4)
    finding = judged(results, "shape", lambda r: r.rows("table.csv", who="theirs").spread("y"), "flat", at_most=1.5)
    assert (finding.verdict, finding.reason) == (NOT_RUN, "fewer than two points")


def test_a_statistical_number_lies_within_its_interval(results: Path, judged: Judge) -> None:
    half = value_of("gates", 0, "value")
    assert judged(results, "statistical", half, "0.4", again=half, tolerance=0.2).verdict == HOLDS
    finding = judged(results, "statistical", half, "0.4", again=half, tolerance=0.05)
    assert (finding.verdict, finding.reason) == (FAILED, "0.5 differs from 0.4 by more than 0.05")
    finding = judged(results, "statistical", half, "0.4", again=half, tolerance=0.05, mcse=half)
    assert (finding.verdict, finding.mcse) == (HOLDS, 0.5)


def test_a_limit_with_an_error_holds_beyond_the_error_only(results: Path, judged: Judge) -> None:
    """A difference of 0.5 with an error of 0.5 is not a difference."""
    half = value_of("gates", 0, "value")
    assert judged(results, "statistical", half, "more", again=half, mcse=half, at_least=-0.6).verdict == HOLDS
    finding = judged(results, "statistical", half, "more", again=half, mcse=half, at_least=0.0)
    assert (finding.verdict, finding.reason) == (FAILED, "0.5 ± 0.5 is not clearly on the right side of 0")


def test_printed_digits_are_compared() -> None:
    assert matches_digits(1000209.0, "1,000,209")
    assert matches_digits("8, 1000, 2, 2", "8, 1000, 2, 2")
    assert not matches_digits("8, 1000, 2", "8, 1000, 2, 2")
    assert matches_digits(-1.504, "-1.5")
    assert matches_digits(0.0657, "0.066")
    assert not matches_digits(0.0667, "0.066")
    assert not matches_digits(float("nan"), "1")
    assert not matches_digits(0.1051, "0.10499357", 1e-6)


def test_damage_fails_and_stops_nothing_else(results: Path, judged: Judge) -> None:
    (results / "verdict.json").write_text("{")
    record_as(results, "", "test", [results / "table.csv", results / "verdict.json"])
    assert judged(results, "hardware", value_of("gates"), "1").verdict == FAILED
    finding = judged(results, "hardware", y_of("ours"), "1")
    assert (finding.verdict, "3 rows, expected one" in finding.reason) == (FAILED, True)
    assert judged(results, "hardware", y_of("ours", column="z"), "1").reason == "table.csv: no column 'z'"


@pytest.mark.parametrize("case", ["no inputs", "not a number", "right"])
def test_a_row_that_cannot_be_computed_again_fails(results: Path, judged: Judge, case: str) -> None:
    """It would have ended the program."""
    inputs = {"no inputs": "", "not a number": "x", "right": "2"}[case]
    (results / "table.csv").write_text(f"who,x,y\nours,{inputs},4\ntheirs,3,9\n")
    record_as(results, "", "test", [results / "table.csv"])

    def again(found: Results) -> Reading:
        return recompute(found, "table.csv", "y", lambda row: float(row["x"]) ** 2, 1e-9, {"who": "ours"})

    finding = judged(results, "exact", y_of("ours"), "4", again=again)
    assert finding.verdict == (HOLDS if case == "right" else FAILED)
    assert ("a row has no inputs" in finding.reason) == (case != "right")


def test_every_claim_has_a_row_and_none_holds_without_results(tmp_path: Path) -> None:
    findings = judge_all(tmp_path, CLAIMS)
    assert {finding.verdict for finding in findings} == {NOT_RUN}
    letters = {"A": 5, "B": 4, "C": 2, "D": 7, "E": 9}
    assert list(dict.fromkeys(f.claim.name for f in findings)) == [
        f"{k}{i + 1}" for k, n in letters.items() for i in range(n)
    ]
    layout = ReproductionLayout(tmp_path)
    write_findings(layout.table, findings)
    write_claims_page(layout.page, findings)
    with layout.table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "reproduction.md").read_text()
    documented = guide.partition("## Columns of `claims.csv`")[2].partition("##")[0]
    assert list(rows[0]) == re.findall(r"`(\w+)`", documented)
    assert [row["verdict"] for row in rows] == [NOT_RUN] * len(findings)
    page = layout.page.read_text()
    assert "1940 1/s" in page
    assert "150,000 in 181 s are 829" in page
    links = re.findall(r"https?://[^\s\"'<>]+", page)
    assert links
    assert all(link.startswith(("https://github.com", "https://www.", "http://www.w3.org")) for link in links)


def test_page_links_to_the_stored_result(results: Path, judged: Judge) -> None:
    finding = judged(results, "hardware", y_of("theirs", 1), "14", unit="s")
    layout = ReproductionLayout(results)
    write_claims_page(layout.page, [finding])
    text = layout.page.read_text()
    assert '<a href="../table.csv">table.csv</a>' in text
    assert (layout.page.parent / "../table.csv").resolve() == (results / "table.csv").resolve()
    assert "× 0.500" in text
