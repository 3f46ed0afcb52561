"""The source, model and shards that a spec names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import component_path, load_component, read_options
from bayesmesh.data.base import DataSpec, Source
from bayesmesh.data.shards import Shards, open_shards
from bayesmesh.errors import ConfigError
from bayesmesh.planning.specs import StageSpec
from bayesmesh.stages.experiment_files import data_layout

__all__ = ["in_file_of", "make_source", "model_class_and_options", "shards_of"]


def make_source(spec: StageSpec) -> Source:
    """Return the source with its options."""
    name = spec.config["data"]["source"]
    options = read_options(component_path("source", name)).model_validate(
        component_options("source", spec.config["data"])
    )
    source: Source = load_component("source", name)(options)
    return source


def model_class_and_options(spec: StageSpec) -> tuple[type[Any], Any]:
    """Return the model's class and its validated options."""
    config = spec.config["model"]
    options = read_options(component_path("model", config["name"])).model_validate(component_options("model", config))
    return load_component("model", config["name"]), options


def shards_of(spec: StageSpec) -> tuple[Shards, DataSpec]:
    """Return the shards and the data spec in the experiment's dtype."""
    shards = open_shards(data_layout(spec).shards)
    return shards, shards.spec(spec.config["compute"]["dtype"])


@contextlib.contextmanager
def in_file_of(spec: StageSpec) -> Iterator[None]:
    """Put the experiment's file in front of what is wrong with a key of it."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"config/experiments/{spec.experiment}.yaml: {error.message}", error.remedy) from error
