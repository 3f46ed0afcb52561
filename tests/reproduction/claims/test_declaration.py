"""A number that no result could turn red cannot be declared, and the error names the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.errors import ConfigError
from bayesmesh_reproduction.claims.declaration import CLAIMS, read_claims
from bayesmesh_reproduction.claims.results import NotRun, Reading, Results

HEAD = "pieces:\n- title: A piece\n  claims:\n    X1:\n      statement: a statement\n      rules:\n"
CELL = "check: cell, at: {file: benchmarks/a.csv, column: b}"
IT = "numbers: {it: {published: '1'}}"


def declare(folder: Path, *rules: str) -> Path:
    """Write a file of claims with these rules, in YAML's flow style."""
    path = folder / "published.yaml"
    path.write_text(HEAD + "".join(f"      - {{{rule}}}\n" for rule in rules))
    return path


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (f"kind: exact, {CELL}, {IT}", "'exact' needs again"),
        (f"kind: exact, {CELL}, {IT}, again: cell, at_lest: 1", "unknown key '.*at_lest'"),
        (f"kind: statistical, {CELL}, {IT}, tolerance: 1.0", "'statistical' needs again"),
        (f"kind: statistical, {CELL}, {IT}, again: cell", "and one of tolerance, mcse"),
        (f"kind: shape, {CELL}, {IT}", "'shape' needs at_least or at_most"),
        (f"kind: shape, {CELL}, {IT}, at_least: 1, again: cell", "takes neither again"),
        (f"kind: hardware, {CELL}, {IT}", "'hardware' needs hardware"),
        (f"kind: exact, check: cel, {IT}, again: cell", "unknown check"),
        (f"kind: exact, {CELL}, again: cell, numbers: {{it: {{published: 1}}}}", "published"),
    ],
)
def test_a_number_that_nothing_could_fail_is_refused(tmp_path: Path, rule: str, said: str) -> None:
    path = declare(tmp_path, rule)
    with pytest.raises(ConfigError, match=said) as caught:
        read_claims(path)
    assert str(path) in str(caught.value)


def test_two_numbers_of_one_name_are_refused(tmp_path: Path) -> None:
    rule = f"kind: hardware, hardware: a machine, {CELL}, {IT}"
    with pytest.raises(ConfigError, match="two numbers have the name 'it'"):
        read_claims(declare(tmp_path, rule, rule))


def test_numbers_keep_their_order_and_add_their_arguments(tmp_path: Path) -> None:
    numbers = "numbers: {second: {published: '2', column: c}, third: {published: '3'}}"
    first = f"kind: shape, at_least: 1, {CELL}, numbers: {{first: {{published: '1'}}}}"
    (claim,) = read_claims(declare(tmp_path, first, f"kind: hardware, hardware: a machine, {CELL}, {numbers}"))
    assert [(n.name, n.rule.kind) for n in claim.numbers] == [
        *(("first", "shape"), ("second", "hardware"), ("third", "hardware"))
    ]
    assert [n.arguments["column"] for n in claim.numbers] == ["b", "c", "b"]


class _ArraysOnly(Results):
    """Results whose tables must not be read."""

    def rows(self, file: str, **where: Any) -> Any:
        raise AssertionError(f"{file}: read as a table")

    def value(self, file: str, *keys: str | int) -> Reading:
        raise AssertionError(f"{file}: read as JSON")


def test_a_number_that_is_not_computed_again_is_computed_from_arrays(tmp_path: Path) -> None:
    numbers = [(claim.name, number) for claim in CLAIMS for number in claim.numbers]
    once = [(n, v) for n, v in numbers if v.rule.kind in ("exact", "statistical") and v.rule.again is None]
    assert {name for name, _ in once} == {"E2", "E6"}
    for _, number in once:
        with pytest.raises(NotRun):
            number.read(number.rule.check, _ArraysOnly(tmp_path))
    (claim,) = read_claims(declare(tmp_path, f"kind: exact, {CELL}, again: null, {IT}"))
    with pytest.raises(AssertionError, match="read as a table"):
        claim.numbers[0].read(claim.numbers[0].rule.check, _ArraysOnly(tmp_path))


def test_a_folder_that_claims_do_not_follow_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="name its folder"):
        Results(tmp_path).rows("elsewhere/a.csv")
