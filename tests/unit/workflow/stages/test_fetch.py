"""Bad inputs of the sources that read files: an error with file or key and a remedy, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayesmesh.cli import main

FLATS = "price,rooms,town,day\n" + "".join(f"{i + 0.5},{i % 4},{'AB'[i % 2]},2026-01-{i + 1:02d}\n" for i in range(12))
REST = {"title": "Bad", "model": {"name": "gaussian"}, "kernel": {"name": "hmc"}}

TABLES: list[tuple[str, dict[str, Any], str]] = [
    # The files.
    (FLATS, {"files": "data/flat.csv"}, "key 'data.files': data/flat.csv: no such file"),
    (FLATS, {"files": "data/*.tsv"}, "key 'data.files': data/*.tsv: no file has such a name"),
    (FLATS, {"files": ["data/flats.csv", "data/*.csv"]}, "key 'data.files': data/flats.csv is named twice"),
    (FLATS, {"files": []}, "key 'data.files'"),
    (FLATS, {"files": 3}, "key 'data.files'"),
    ("", {}, "data/flats.csv: the file is empty"),
    ("price,rooms\n", {}, "data/flats.csv: the file holds no rows"),
    (FLATS + "1,2\n", {}, "data/flats.csv, row 13: 2 cells, and the header has 4"),
    ("\0\0\0", {"format": "parquet"}, "data/flats.csv: not a whole table in the format parquet"),
    ("{}\n{", {"format": "jsonl"}, "data/flats.csv, line 2: not JSON"),
    # The options.
    (FLATS, {"format": "xlsx"}, "key 'data.format'"),
    (FLATS, {"delimiter": ";;"}, "key 'data.delimiter'"),
    (FLATS, {"colums": ["price"]}, "unknown key 'data.colums'"),
    (FLATS, {"columns": []}, "key 'data.columns'"),
    (FLATS, {"columns": ["prices"]}, "key 'data.columns': no column 'prices'"),
    (FLATS, {"columns": ["*", "-price*", "-rooms", "-town", "-day"]}, "no column is left"),
    (FLATS, {"types": {"price": "text"}}, "key 'data.types.price'"),
    (FLATS, {"types": {"prices": "number"}}, "key 'data.types': no column 'prices'"),
    (FLATS, {"levels": {"town": [1, 2]}}, "key 'data.levels.town"),
    (FLATS, {"missing": "ignore"}, "key 'data.missing'"),
    (FLATS, {"standardise": ["town"]}, "key 'data.standardise': 'town' is a category"),
    (FLATS, {"standardise": "price"}, "key 'data.standardise'"),
    (FLATS, {"fields": {"x": ["pric"]}}, "key 'data.fields.x': no column 'pric'"),
    (FLATS, {"constants": {"k": "three"}}, "key 'data.constants.k"),
    (FLATS, {"rows": "__import__('os')"}, "key 'data.rows': __import__('os'): "),
    (FLATS, {"rows": "price > 99"}, "data/flats.csv: no row is left of 12"),
    (FLATS, {"rows": "town > 'A'"}, "a category is compared"),
    (FLATS, {"held_out_groups": "town"}, "key 'data.held_out_groups': nothing is held out"),
    (FLATS, {"held_out_fraction": 0.2, "held_out_groups": "town", "held_out_last": "day"}, "key 'data.held_out_groups'"),
    # The cells.
    (FLATS.replace("2.5,2,", "2.5,,"), {}, "data/flats.csv, row 3: 'rooms' holds no value"),
    (FLATS.replace("2.5,2,", "a,2,"), {}, "data/flats.csv, row 3: 'price' is not a number but 'a'"),
    (FLATS.replace("2.5,2,", "inf,2,"), {}, "data/flats.csv, row 3: 'price' is infinite"),
    (FLATS.replace("2.5,2,", "2.5,2.5,"), {"types": {"rooms": "integer"}}, "row 3: 'rooms' is not a whole number but '2.5'"),
    (FLATS.replace("2026-01-03", "3.1.26"), {"types": {"day": "time"}}, "row 3: 'day' is not a time"),
    (FLATS, {"levels": {"town": ["A"]}}, "row 2: 'town' is 'B', which is not among its levels"),
    (FLATS.replace("price", "pr/ice"), {}, "column 'pr/ice' cannot be the name of a field"),
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "config" / "experiments").mkdir(parents=True)
    (tmp_path / "config" / "config.yaml").write_text("experiments: [bad]\n")
    return tmp_path


def configure(project: Path, data: dict[str, Any]) -> None:
    (project / "config" / "experiments" / "bad.yaml").write_text(yaml.safe_dump({"data": data, **REST}))


def refused(capsys: pytest.CaptureFixture[str], project: Path, verb: str, said: str) -> None:
    """Run a verb, which must end with an error that says something and has a remedy."""
    code = main([verb, "--experiment", "bad"])
    output = "".join(capsys.readouterr())
    assert code in (2, 3), output
    assert "error: " in output
    assert said in output
    assert "Traceback" not in output
    assert "remedy: " in output or "valid: " in output or "should be" in output, output
    assert not list(project.glob(f"results/seals/**/{verb}.json"))


@pytest.mark.parametrize(("text", "options", "said"), TABLES, ids=[said for _, _, said in TABLES])
def test_a_bad_table_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], text: str, options: dict[str, Any], said: str
) -> None:
    (project / "data" / "flats.csv").write_text(text)
    configure(project, {"source": "table", "files": "data/flats.csv", **options})
    refused(capsys, project, "fetch", said)
    assert not list(project.glob("results/data/*/records"))


def test_a_change_between_two_stages_is_noticed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "data" / "x.json"
    path.write_text(json.dumps({"x": [1, 2, 3]}))
    configure(project, {"source": "arrays", "files": "data/x.json"})
    assert main(["fetch", "--experiment", "bad"]) == 0
    assert main(["shard", "--experiment", "bad"]) == 0
    assert main(["verify"]) == 0
    path.write_text(json.dumps({"x": [1, 2, 4]}))
    assert main(["verify"]) == 5
    assert "fetch was made from another data/x.json than the present one" in capsys.readouterr().out
    assert main(["compile", "--experiment", "bad"]) == 5
    said = capsys.readouterr().err
    assert "error: fetch: was made from another data/x.json than the present one\n  remedy: run fetch again" in said
    path.unlink()
    assert main(["compile", "--experiment", "bad"]) == 3
    assert "data/x.json: no such file" in capsys.readouterr().err
