"""Open the shards of a specification as its model takes them."""

from __future__ import annotations

import functools
from pathlib import Path

from bayesmesh.analyses.base import BoundModel
from bayesmesh.config.data_spec import Prepare
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import ReplicatedShards, WholeShards, prepared
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.workflow.components import Component, in_file_of
from bayesmesh.workflow.jobs import Job


def shards_of(job: Job, model: Component) -> tuple[Shards, DataSpec]:
    """Return the shards, as the model takes them, and the data spec in the experiment's dtype."""
    (model_class, options), path = model, job.data_layout.shards
    prepare, is_whole = functools.partial(model_class.prepare, options), model_class.reads_whole(options)
    field = job.data.replicates
    with in_file_of(job):
        if field is not None:
            shards: Shards = _replicated(path, field, prepare, model_class, is_whole=is_whole)
        else:
            shards = WholeShards(path, prepare) if is_whole else prepared(path, prepare)
    return shards, shards.spec(job.compute.dtype)


def bind(job: Job, model: Component) -> BoundModel:
    """Open the data of an experiment, and bind its model to them."""
    (model_class, options), (shards, data_spec) = model, shards_of(job, model)
    return BoundModel(model_class(options, data_spec), data_spec, shards)


def _replicated(
    path: Path, field: str, prepare: Prepare, model_class: type[Model], *, is_whole: bool
) -> ReplicatedShards:
    if is_whole and not model_class.takes_all_rows:
        raise ConfigError(
            "key 'data.replicates': the model holds its data, and those of one dataset",
            "let it read fields of rows, or write a function of `log_density`",
        )
    return ReplicatedShards(Shards(path) if is_whole else prepared(path, prepare), field, is_whole=is_whole)
