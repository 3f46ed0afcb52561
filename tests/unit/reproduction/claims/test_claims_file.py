"""What is wrong in claims.yaml is said with file, claim, number and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.errors import ConfigError
from bayesmesh.reproduction.claims.claims_file import load_claims
from bayesmesh.reproduction.claims.witnesses import ask_witness  # loads, and holds the names to the functions

GOOD: dict[str, Any] = {
    "published": "1",
    "measure": {"file": "a.csv", "column": "c"},
    "witness": {"witness": "watch_matrix", "experiment": "m", "which": "most"},
}


def refusal(path: Path, kind: str = "exact", claim: dict[str, Any] | None = None, **number: Any) -> str:
    numbers = {"it": {k: v for k, v in (GOOD | number).items() if v is not None}}
    whole = {"source": "s", "statement": "a", "kind": kind, "numbers": numbers, **(claim or {})}
    path.write_text(yaml.safe_dump({"sources": {"s": {"title": "t"}}, "claims": {"X1": whole}}))
    with pytest.raises(ConfigError) as caught:
        load_claims(path)
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_good_claims_load_and_name_their_files(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    claim = {"source": "s", "statement": "a", "kind": "exact", "numbers": {"it": GOOD}}
    path.write_text(yaml.safe_dump({"sources": {"s": {"title": "t"}}, "claims": {"X1": claim}}))
    assert load_claims(path)[0].files() == ["a.csv", "m/posterior.sha256"]
    assert callable(ask_witness)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ({"publishd": "1"}, "'claims.X1.numbers.it.publishd'\n  remedy: did you mean 'published'?"),
        ({"published": 1.0}, "'claims.X1.numbers.it.published': should be a valid string"),
        ({"measure": {"file": "a.csv", "colunm": "c"}}, "it.measure.colunm'\n  remedy: did you mean 'column'?"),
        ({"measure": {"file": "../a.csv", "column": "c"}}, "is no table or store below the results"),
        ({"measure": {"file": "a.csv", "ratio": {"of": {}, "to": {}}}}, "a measure is one of"),
        ({"measure": {"file": "a.py", "column": "c"}}, "is no table or store"),
        ({"measure": {"file": "a.csv"}}, "it.measure.column': a table or store needs one"),
        ({"witness": {"witness": "softmax_acuracy"}}, "it.witness.witness'"),
        ({"witness": {"witness": "watch_matrix", "experiment": "../m"}}, "it.witness.experiment': '../m' is no name"),
        ({"witness": None}, "it.witness' is missing: a number of kind exact is computed a second time"),
    ],
)
def test_a_wrong_number_is_named(tmp_path: Path, number: dict[str, Any], said: str) -> None:
    assert said in refusal(tmp_path / "claims.yaml", **number)


def test_a_claim_that_nothing_could_fail_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    assert "a shape has a limit" in refusal(path, "shape")
    assert "a statistical number has an interval" in refusal(path, "statistical")
    assert "hardware: not stated" in refusal(path, "hardware")
    assert "no source 'r'" in refusal(path, claim={"source": "r"})
    assert "'claims.X1.kind'" in refusal(path, "exakt")


def test_duplicate_and_unknown_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text("sources: {}\nsources: {}\n")
    with pytest.raises(ConfigError, match="duplicate key 'sources', first given in line 1"):
        load_claims(path)
    path.write_text("source: {}\n")
    with pytest.raises(ConfigError, match="did you mean 'sources'"):
        load_claims(path)
