"""The generated documents say what the classes say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from bayesmesh.cli import main
from bayesmesh.config.declarations import list_analyses
from bayesmesh.config.experiment import ExperimentBase, RunSettings, experiment_class
from bayesmesh.config.registry import PACKAGES, list_components, options_class
from bayesmesh.config.schema import documents, drifted, example_of, write_documents
from bayesmesh.config.settings import Settings, as_tuple, blocks_in

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ROOT / "config"


def test_the_documents_are_up_to_date() -> None:
    assert drifted(CONFIG) == [], "run `make schema`"


def test_the_schema_closes_every_block() -> None:
    schema = json.loads((CONFIG / "schema.json").read_text())["experiments/*.yaml"]
    blocks = [b for b in schema["$defs"].values() if b.get("type") == "object"]
    assert len(blocks) > sum(len(list_components(kind)) for kind in PACKAGES)
    assert all(block["additionalProperties"] is False for block in [schema, *blocks])
    assert set(schema["properties"]) == set(experiment_class().model_fields)


def list_fields(cls: type[Settings]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in cls.model_fields.items():
        blocks = blocks_in(field.annotation)
        if not blocks:
            yield f"{cls.__name__}.{name}", field
        for block in blocks:
            yield from list_fields(block)


def test_every_key_has_an_example_that_it_accepts() -> None:
    components = [options_class(kind, name) for kind in PACKAGES for name in list_components(kind)]
    analyses = [options_class("analysis", each.name) for each in list_analyses()]
    fields = dict(each for cls in (RunSettings, ExperimentBase, *components, *analyses) for each in list_fields(cls))
    assert len(fields) > 150
    for name, field in fields.items():
        example = example_of(field)
        assert example not in (None, "", (), [], {}), name
        value = as_tuple(field.annotation, example)
        assert TypeAdapter(Annotated[field.annotation, field]).validate_python(value, strict=True) is not None, name


def test_every_variable_of_the_environment_is_listed() -> None:
    page = (ROOT / "docs" / "reference" / "environment.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "src" / "bayesmesh").rglob("*.py"))
    read = set(re.findall(r'"(BAYESMESH_[A-Z_]+|SOURCE_DATE_EPOCH|SNAKEMAKE_PROFILE|JAX_[A-Z_]+|XLA_FLAGS)"', code))
    assert len(read) > 8
    assert {name for name in read if f"`{name}`" not in page} == set()
    assert {name for name in re.findall(r"^\| `([A-Z_]+)`", page, re.MULTILINE) if f'"{name}"' not in code} == set()


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
