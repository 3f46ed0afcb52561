"""Open the shards of a spec, bind its model to them, and name its file in messages."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from bayesmesh.config.files import experiment_file
from bayesmesh.data.base import DataSpec
from bayesmesh.data.prepared_shards import Prepare, prepared
from bayesmesh.data.replicated_shards import ReplicatedShards
from bayesmesh.data.shards import Shards
from bayesmesh.data.whole_shards import WholeShards
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.workflow.specs import StageSpec


def key_of_model(spec: StageSpec) -> str:
    """Return the key that names the user's code; for a model that takes a function, the key of that function."""
    return "model.function" if "function" in dict(spec.model) else "model.name"


def shards_of(spec: StageSpec) -> tuple[Shards, DataSpec]:
    """Return the shards, as the model takes them, and the data spec in the experiment's dtype."""
    with in_file_of(spec, key_of_model(spec)):
        model_class, options = spec.component("model")
    path = spec.data_layout.shards
    prepare, is_whole = functools.partial(model_class.prepare, options), model_class.reads_whole(options)
    field = spec.data.replicates
    with in_file_of(spec):
        if field is not None:
            shards: Shards = _replicated(path, field, prepare, model_class, is_whole=is_whole)
        else:
            shards = WholeShards(path, prepare) if is_whole else prepared(path, prepare)
    return shards, shards.spec(spec.compute.dtype)


def _replicated(
    path: Path, field: str, prepare: Prepare, model_class: type[Model], *, is_whole: bool
) -> ReplicatedShards:
    if is_whole and not model_class.takes_all_rows:
        raise ConfigError(
            "key 'data.replicates': the model holds its data, and those of one dataset",
            "let it read fields of rows, or write a function of `log_density`",
        )
    return ReplicatedShards(Shards(path) if is_whole else prepared(path, prepare), field, is_whole=is_whole)


def model_of(spec: StageSpec, data_spec: DataSpec) -> Model:
    """Return the spec's model, bound to the data."""
    model_class, options = spec.component("model")
    model: Model = model_class(options, data_spec)
    return model


@contextlib.contextmanager
def in_file_of(spec: StageSpec, key: str = "") -> Iterator[None]:
    """Prefix configuration errors with the experiment's file, and with a key if one is given and the error names none."""
    try:
        yield
    except ConfigError as error:
        file, names_key = experiment_file(Path("config"), spec.experiment), error.message.startswith("key '")
        if error.message.startswith(f"{file}: "):
            raise
        where = f"{file}: " + (f"key '{key}': " if key and not names_key else "")
        raise ConfigError(f"{where}{error.message}", error.remedy) from error
