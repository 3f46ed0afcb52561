"""A number that no result could turn red cannot be declared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.reproduction.claims.claim import COMPUTED, Claim, Measure, Source
from bayesmesh.reproduction.claims.claim_list import CLAIMS
from bayesmesh.reproduction.claims.results import NotRun, Reading, Results


@pytest.fixture
def claim() -> Claim:
    """A claim without numbers."""
    return Claim("X1", Source("A piece"), "a statement")


def one(results: Results) -> Reading:
    return Reading(1.0, "table.csv")


IT = ("it", "1")


@pytest.mark.parametrize(
    "declare",
    [
        lambda claim: claim.exact(IT),
        lambda claim: claim.exact(IT, again=one, at_lest=1),
        lambda claim: claim.statistical(IT, tolerance=1.0),
        lambda claim: claim.statistical(IT, again=one),
        lambda claim: claim.shape(IT),
        lambda claim: claim.shape(IT, again=one),
        lambda claim: claim.hardware(IT),
        lambda claim: claim.hardware(IT, ("it", "2"), on="a machine"),
    ],
    ids=[
        "exact, not computed again", "unknown option", "statistical, not computed again", "no interval", "no limit",
        "shape, unknown option", "no hardware", "two numbers of one name",
    ],
)  # fmt: skip
def test_a_number_that_nothing_could_fail_is_refused(
    claim: Claim, declare: Callable[[Claim], Callable[[Measure], Measure]]
) -> None:
    with pytest.raises(TypeError):
        declare(claim)(one)
    assert claim.numbers == []


def test_stacked_decorators_are_read_from_the_top_down(claim: Claim) -> None:
    @claim.shape(("first", "1"), at_least=1)
    @claim.hardware(("second", "2"), ("third", "3"), on="a machine")
    def check(results: Results) -> Reading:
        return one(results)

    claim.shape(("fourth", "4"), at_most=1)(one)
    assert [number.name for number in claim.numbers] == ["first", "second", "third", "fourth"]
    assert [number.kind for number in claim.numbers] == ["shape", "hardware", "hardware", "shape"]


class _ArraysOnly(Results):
    """Results whose tables must not be read."""

    def rows(self, file: str, **where: Any) -> Any:
        raise AssertionError(f"{file}: read as a table")

    def value(self, file: str, *keys: str | int) -> Reading:
        raise AssertionError(f"{file}: read as JSON")


def test_a_number_that_is_not_computed_again_is_computed_from_arrays(tmp_path: Path, claim: Claim) -> None:
    numbers = [number for published in CLAIMS for number in published.numbers]
    once = [n for n in numbers if n.kind in ("exact", "statistical") and n.again is None]
    assert {number.claim.name for number in once} == {"E2", "E6"}
    for number in once:
        with pytest.raises(NotRun):
            number.read(number.measure, _ArraysOnly(tmp_path))
    claim.exact(IT, again=COMPUTED)(lambda results: results.rows("benchmarks/a.csv").only("b"))
    with pytest.raises(AssertionError, match="read as a table"):
        claim.numbers[0].read(claim.numbers[0].measure, _ArraysOnly(tmp_path))


def test_a_folder_that_claims_do_not_follow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="name its folder"):
        Results(tmp_path).rows("elsewhere/a.csv")
