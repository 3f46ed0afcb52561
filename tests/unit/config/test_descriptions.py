"""Descriptions of fields: strings below them in the source, or those of `Field`."""

from __future__ import annotations

import pytest
from pydantic import Field

from bayesmesh.config.blocks import ComputeSettings
from bayesmesh.config.descriptions import descriptions
from bayesmesh.config.experiment import ExperimentBase, RunSettings, experiment_class
from bayesmesh.config.registry import component_path, list_components, read_options
from bayesmesh.config.settings import Settings
from bayesmesh.planning.site import GpuNodes, Site


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
    assert descriptions(Base) == {"first": "Below the field."}
    assert descriptions(Derived) == {"first": "Below the field of the derived class.", "third": "In Field."}


def test_the_schema_holds_them() -> None:
    properties = Derived.model_json_schema()["properties"]
    assert properties["first"]["description"] == "Below the field of the derived class."
    assert "description" not in properties["second"]


@pytest.mark.parametrize("cls", [ExperimentBase, RunSettings, ComputeSettings, Site, GpuNodes, experiment_class()])
def test_every_field_of_the_configuration_is_described(cls: type[Settings]) -> None:
    assert descriptions(cls).keys() == cls.model_fields.keys()


def test_options_of_components_are_described_in_field() -> None:
    for name in list_components("kernel"):
        options = read_options(component_path("kernel", name))
        assert descriptions(options).keys() == options.model_fields.keys()
