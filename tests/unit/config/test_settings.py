"""The base class of blocks: a list of YAML is a tuple where a field is one; fields are described by strings below them."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field, ValidationError

from bayesmesh.config.config_blocks import ComputeSettings
from bayesmesh.config.config_registry import component_path, list_components, read_options
from bayesmesh.config.experiment import ExperimentBase, RunSettings, experiment_class
from bayesmesh.config.settings import Settings, describe
from bayesmesh.planning.planned_site import GpuNodes, Site


class Block(Settings):
    """All kinds of tuples."""

    many: tuple[int, ...] = Field((), max_length=3)
    pair: tuple[float, str] = (0.0, "")
    nested: tuple[tuple[int, int], ...] = ()
    perhaps: tuple[int, ...] | None = None
    one_of: Annotated[tuple[str, ...], Field(min_length=1)] = ("a",)
    plain: list[int] = Field([])


@pytest.mark.parametrize(
    ("key", "given", "taken"),
    [
        ("many", [1, 2], (1, 2)),
        ("many", [], ()),
        ("many", (1,), (1,)),
        ("pair", [0.5, "x"], (0.5, "x")),
        ("nested", [[1, 2], [3, 4]], ((1, 2), (3, 4))),
        ("perhaps", [1], (1,)),
        ("perhaps", None, None),
        ("one_of", ["a", "b"], ("a", "b")),
        ("plain", [1], [1]),
    ],
)
def test_a_list_is_a_tuple_where_the_field_is_one(key: str, given: Any, taken: Any) -> None:
    assert getattr(Block.model_validate({key: given}), key) == taken


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("many", ["1"]), ("many", [1.0]), ("many", [1, 2, 3, 4]), ("many", "12"), ("many", {1, 2}), ("many", {"a": 1}),
        ("pair", [0.5]), ("pair", [0.5, "x", "y"]), ("pair", ["x", 0.5]), ("nested", [[1]]), ("nested", [1]),
        ("perhaps", [None]), ("one_of", []), ("plain", (1,)), ("other", [1]),
    ],
)  # fmt: skip
def test_nothing_else_becomes_looser(key: str, given: Any) -> None:
    with pytest.raises(ValidationError):
        Block.model_validate({key: given})


@pytest.mark.parametrize("given", [[], None, "many", 3])
def test_a_block_that_is_no_mapping_stays_an_error(given: Any) -> None:
    with pytest.raises(ValidationError):
        Block.model_validate(given)


class Base(Settings):
    """A class of a test."""

    first: int = 1
    """Below the
    field."""
    second: int = 2


class Derived(Base):
    """A class with a field that its base has not."""

    third: int = Field(3, description="In Field.")
    """Below as well."""
    first: int = 4
    """Below the field of the derived class."""


def test_the_derived_class_and_field_come_first() -> None:
    described = {cls: {name: describe(field) for name, field in cls.model_fields.items()} for cls in (Base, Derived)}
    assert described[Base] == {"first": "Below the field.", "second": ""}
    assert described[Derived] == {
        "first": "Below the field of the derived class.", "second": "", "third": "In Field.",
    }  # fmt: skip


def test_the_schema_holds_them() -> None:
    properties = Derived.model_json_schema()["properties"]
    assert properties["first"]["description"] == "Below the field of the derived class."
    assert "description" not in properties["second"]


@pytest.mark.parametrize("cls", [ExperimentBase, RunSettings, ComputeSettings, Site, GpuNodes, experiment_class()])
def test_every_field_of_the_configuration_is_described(cls: type[Settings]) -> None:
    assert all(map(describe, cls.model_fields.values()))


def test_options_of_components_are_described_in_field() -> None:
    for name in list_components("kernel"):
        options = read_options(component_path("kernel", name))
        assert all(map(describe, options.model_fields.values()))


def test_descriptions_of_a_user_s_file_are_read_without_looking_up_every_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'from bayesmesh.config.settings import Settings\n\n\nclass Options(Settings):\n    width: float = 1.0\n    """Of B."""\n'
    looked_up, plain = [], inspect.getabsfile
    for number in range(2):
        (tmp_path / f"own_options_{number}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_options_0")
    monkeypatch.setattr(inspect, "getabsfile", lambda *of: looked_up.append(of) or plain(*of))
    monkeypatch.setattr(inspect, "_filesbymodname", {})
    options = importlib.import_module("own_options_1").Options
    assert describe(options.model_fields["width"]) == "Of B."
    assert len(looked_up) < 50
