"""The generated documents say what the classes say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bayesmesh.cli import main
from bayesmesh.config.config_registry import PACKAGES, list_components, options_class
from bayesmesh.config.experiment import ExperimentBase, RunSettings, experiment_class
from bayesmesh.config.schema import documents, drifted, write_documents
from bayesmesh.config.settings import Settings

CONFIG = Path(__file__).resolve().parents[3] / "config"


def test_the_documents_are_up_to_date() -> None:
    assert drifted(CONFIG) == [], "run `make schema`"


def _keys(cls: type[Settings], prefix: str) -> list[str]:
    found = []
    for name, field in cls.model_fields.items():
        found.append(f"{prefix}{name}")
        for arm in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(arm, type) and issubclass(arm, Settings) and "limit" not in arm.model_fields:
                found += _keys(arm, f"{prefix}{name}.")
    return found


def test_the_table_has_every_key_with_a_description() -> None:
    text = (CONFIG / "README.md").read_text()
    keys = _keys(RunSettings, "") + _keys(ExperimentBase, "")
    for kind, block in (("source", "data"), ("model", "model"), ("kernel", "kernel")):
        for name in list_components(kind):
            assert f"{block}.{'source' if kind == 'source' else 'name'}: {name}`" in text
            keys += _keys(options_class(kind, name), f"{block}.")
    for name in list_components("analysis"):
        assert f"### `{name}`" in text
        keys += _keys(options_class("analysis", name), f"{name}.")
    assert {"compute.mesh.data", "sampling.initial.spread", "data.num_films", "gates.r_hat"} <= set(keys)
    for key in keys:
        (row, *_) = [line for line in text.splitlines() if line.startswith(f"| `{key}` |")]
        cells = re.split(r"(?<!\\)\|", row)
        assert len(cells) == 5, row
        assert cells[3].strip() not in ("", "None"), row


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
