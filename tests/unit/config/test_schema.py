"""The generated documents say what the classes say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bayesmesh.cli import main
from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import PACKAGES, list_components
from bayesmesh.config.schema import documents, drifted, write_documents

CONFIG = Path(__file__).resolve().parents[3] / "config"


def test_the_documents_are_up_to_date() -> None:
    assert drifted(CONFIG) == [], "run `make schema`"


def test_the_schema_closes_every_block() -> None:
    schema = json.loads((CONFIG / "schema.json").read_text())["experiments/*.yaml"]
    blocks = [b for b in schema["$defs"].values() if b.get("type") == "object"]
    assert len(blocks) > sum(len(list_components(kind)) for kind in PACKAGES)
    assert all(block["additionalProperties"] is False for block in [schema, *blocks])
    assert set(schema["properties"]) == set(experiment_class().model_fields)


def test_drift_is_an_exit_code_with_the_command_that_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["schema", "--check"]) == 1
    assert "make schema" in capsys.readouterr().err
    assert main(["schema"]) == 0
    assert main(["schema", "--check"]) == 0
    (tmp_path / "config" / "README.md").write_text("stale")
    assert drifted(tmp_path / "config") == [tmp_path / "config" / "README.md"]
    write_documents(tmp_path / "config")
    assert {p.name for p in documents(tmp_path)} == {"schema.json", "README.md"}
    assert drifted(tmp_path / "config") == []
