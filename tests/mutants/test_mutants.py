"""The mutants fit the source, and the runner tells those that tests see from those that survive."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from mutants.run import ROOT, Mutant, read_mutants, run_all

TEST = "from half import half\n\n\ndef test_half():\n    assert half(6) == 3\n"


def test_every_mutant_fits_the_source() -> None:
    mutants = read_mutants()
    assert len({m.id for m in mutants}) == len(mutants) >= 60
    for mutant in mutants:
        compile(mutant.mutate(ROOT), mutant.file, "exec")
        for test in mutant.tests:
            assert (ROOT / test.partition("::")[0]).is_file(), f"{mutant.id}: no {test}"
    assert len(read_mutants("samplers")) == 8, "the defects that `make verify-samplers` must see"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of one module and its test."""
    folder = tmp_path / "tree"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "half.py").write_text("def half(number):\n    return number // 2\n")
    (folder / "test_half.py").write_text(TEST)
    return folder


@pytest.fixture
def mutant() -> Callable[[str], Mutant]:
    """A function of a replacement that gives the mutant."""
    return lambda new: Mutant(new, "the half", "src/half.py", "number // 2", new, ("test_half.py",))


def outcomes(table: Path) -> dict[str, str]:
    with table.open(newline="") as file:
        return {row["id"]: row["outcome"] for row in csv.DictReader(file)}


def test_a_mutant_that_loops_for_ever_is_seen(
    tree: Path, mutant: Callable[[str], Mutant], monkeypatch, tmp_path
) -> None:
    monkeypatch.setattr("mutants.run.SECONDS", 3)
    assert run_all(tree, [mutant("next(iter(int, 1))")], 1, tmp_path / "one.csv") == 0


def test_a_mutant_is_seen_when_a_test_fails_by_it(tree: Path, mutant: Callable[[str], Mutant], tmp_path: Path) -> None:
    mutants = [mutant("number // 3"), mutant("(number + 1) // 2")]
    assert run_all(tree, mutants, 2, tmp_path / "one.csv") == 1
    assert outcomes(tmp_path / "one.csv") == {"number // 3": "seen", "(number + 1) // 2": "survived"}
    assert (tree / "src" / "half.py").read_text().endswith("number // 2\n"), "the tree itself stays as it is"

    (tree / "test_half.py").write_text(TEST.replace("== 3", "== 4"))
    assert run_all(tree, mutants[:1], 1, tmp_path / "two.csv") == 1
    assert outcomes(tmp_path / "two.csv") == {"number // 3": "fails without it"}


def test_a_mutant_that_does_not_fit_is_refused(tree: Path, mutant: Callable[[str], Mutant], tmp_path: Path) -> None:
    (tree / "src" / "half.py").write_text("half = 'number // 2' + 'number // 2'\n")
    with pytest.raises(ValueError, match="has 2 times: number // 2"):
        run_all(tree, [mutant("number")], 1, tmp_path / "table.csv")
