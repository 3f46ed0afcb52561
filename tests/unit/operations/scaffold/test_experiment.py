"""`bayesmesh new experiment` guesses from a table what the experiment needs to run, and says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bayesmesh.cli import main
from bayesmesh.config.loading import load_experiment
from bayesmesh.config.yaml_reader import read_yaml

ROWS = 60
FILE = Path("config/experiments/trees.yaml")


@pytest.fixture(autouse=True)
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """A table with an index, and with outcomes of every kind."""
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir(parents=True)
    Path("config/config.yaml").write_text("experiments: [trees]\n")
    generator, numbers = np.random.default_rng(1), np.arange(ROWS)
    frame = pd.DataFrame({
        "id": numbers + 1, "label": [f"tree {i}" for i in numbers], "height": generator.normal(20, 5, ROWS), "age": generator.normal(50, 9, ROWS),
        "plot": numbers % 6 + 10, "kind": np.array(["ash", "elm", "oak"])[numbers % 3], "alive": np.array(["no", "yes"])[numbers % 2],
        "sick": numbers % 2, "cones": numbers % 7, "grade": numbers % 5 + 1, "girth": np.where(numbers < 3, np.nan, 1.5), "a/b": numbers % 4,
    })  # fmt: skip
    frame.to_csv("trees.csv")
    return frame


def write(formula: str, *words: str) -> int:
    return main(["new", "experiment", "trees", "--table", "trees.csv", "--formula", formula, *words])


def test_the_file_has_what_the_experiment_needs_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert write("height ~ age + (1 | plot)") == 0
    assert read_yaml(FILE) == {
        "title": "Trees",
        "data": {
            "source": "table", "files": "trees.csv", "columns": ["*", "-id", "-label", "-a/b"], "types": {"plot": "category"}, "missing": "drop",
        },
        "model": {"name": "glm", "formula": "height ~ age + (1 | plot)"},
        "predictive_checks": {},
    }  # fmt: skip
    assert capsys.readouterr().out.splitlines()[:8] == [
        f"{FILE}: written",
        "trees.csv: 60 rows",
        "predictors: age (number), plot (numbers that name groups)",
        "family: normal, because height is continuous",
        "left out: '', which names the rows",
        "left out: 'girth', which lacks values",
        "left out: 'id', which numbers the rows",
        "left out: 'label', which has another text in every row",
    ]
    load_experiment(FILE)
    for stage in ("fetch", "shard"):
        assert main([stage, "--experiment", "trees"]) == 0


def test_rows_are_dropped_for_values_that_the_formula_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert write("height ~ girth") == 0
    said = capsys.readouterr().out
    assert "trees.csv: 57 rows, after dropping 3 without a value of the formula" in said
    assert "left out: 'id', which numbers the rows" in said, "also without the rows that are dropped"
    assert load_experiment(FILE).data.missing == "drop"  # type: ignore[attr-defined]


def test_a_misspelt_column_is_suggested_though_it_lacks_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert write("height ~ gitrh") == 2
    assert "did you mean 'girth'? valid: a/b, age, alive," in capsys.readouterr().err, "each once, and not the index"


@pytest.mark.parametrize(
    ("outcome", "family", "why"),
    [
        ("height", "normal", "height is continuous"),
        ("log(height)", "normal", "log(height) is computed from columns"),
        ("grade", "normal", "grade holds whole numbers that do not begin with 0"),
        ("sick", "bernoulli", "sick is 0 or 1"),
        ("alive", "bernoulli", "alive has two levels, of which 'yes' counts as 1"),
        ("kind", "categorical", "kind has 3 levels"),
        ("cones", "negative_binomial", "cones holds whole numbers from 0"),
    ],
)
def test_the_family_is_that_of_the_outcome(
    capsys: pytest.CaptureFixture[str], outcome: str, family: str, why: str
) -> None:
    assert write(f"{outcome} ~ age") == 0
    assert f"family: {family}, because {why}" in capsys.readouterr().out
    assert load_experiment(FILE).model.family == family  # type: ignore[attr-defined]


def test_bad_input_is_an_error_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    def error(*words: str) -> str:
        assert main(["new", *words]) != 0
        assert not FILE.exists()
        return capsys.readouterr().err

    new = "experiment", "trees"
    assert "did you mean 'trees.csv'?" in error(*new, "--table", "tres.csv", "--formula", "y ~ x")
    assert "did you mean 'height'?" in error(*new, "--table", "trees.csv", "--formula", "hieght ~ age")
    assert "did you mean 'plot'?" in error(*new, "--table", "trees.csv", "--formula", "height ~ (1 | plt)")
    assert "not of the form outcome ~ terms" in error(*new, "--table", "trees.csv", "--formula", "height")
    assert "--formula" in error(*new, "--table", "trees.csv")
    assert "--formula" in error("model", "trees", "--table", "trees.csv", "--formula", "height ~ age")
    assert write("height ~ age") == 0
    before = FILE.read_bytes()
    assert write("height ~ kind") != 0
    assert "exists already" in capsys.readouterr().err
    # The name is checked before the table, which may take long to read.
    assert main(["new", "experiment", "trees", "--table", "absent.csv", "--formula", "y ~ x"]) != 0
    assert "exists already" in capsys.readouterr().err
    assert FILE.read_bytes() == before
