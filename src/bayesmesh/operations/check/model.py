"""Find the model to check and a few rows of data for it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from bayesmesh.config.experiment import component_options
from bayesmesh.config.registry import component_path, list_components, load_component, resolve_component
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import Dataset, DataSpec, FieldSpec, Source
from bayesmesh.data.prepared_shards import prepare_rows
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.model import check_model
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.specs import StageSpec, make_spec

_NO_FIELD = "asks for '"
"""Part of the message that refuses a model which reads a missing field."""

MOST_ROWS = 61
"""Rows of the data, of which there are as few as that allows padding everywhere."""


class Subject(NamedTuple):
    """A model and a few rows that it reads.

    Attributes:
        name: of the model, in the registry or ``module:attribute``.
        origin: where the rows come from, in words.
        path: source file of the model.
        model_class, options: of the model.
        spec: of the rows, in float64.
        rows: field -> (row, ...).
    """

    name: str
    origin: str
    path: Path
    model_class: type[Model]
    options: Settings
    spec: DataSpec
    rows: Mapping[str, np.ndarray]

    def first(self, num_rows: int) -> Subject:
        """Return the same subject with at most this many rows."""
        count = min(num_rows, self.spec.num_rows)
        counts = np.bincount(self.spec.entries_of(np.arange(count))).tolist() if self.spec.entry_counts else ()
        spec = dataclasses.replace(self.spec, num_rows=count, entry_counts=tuple(counts))
        return self._replace(spec=spec, rows={k: v[:count] for k, v in self.rows.items()})


def find_subject(config: Path, model: str | None, experiment: str | None, results: str = "results") -> Subject:
    """Return a model with data: those of the experiment; else of the first that uses the model; else built-in ones.

    Args:
        config: folder of the configuration.
        model: name of the model; that of the experiment when None.
        experiment: name of the experiment.
        results: folder of results, which may hold its shards.

    Raises:
        ConfigError: an unknown name; options are missing; or no data fit the model.
    """
    plan = Plan(str(config), results, is_partial=True, asked=filter(None, [experiment]))
    if experiment is None:
        experiment = next((n for n, e in sorted(plan.experiments.items()) if e.model.name == model), None)
    if experiment is None:
        assert model is not None  # the verb requires one of the two
        return _with_built_in_data(model)
    spec = make_spec("compile", experiment, plan.experiments[experiment], results)
    given = component_options("model", dict(spec.model)) if model in (None, spec.model.name) else {}
    name = model or spec.model.name
    rows, about, origin = _rows_of(spec)
    return _subject(name, given, rows, about, origin)


def _rows_of(spec: StageSpec) -> tuple[dict[str, np.ndarray], Dataset | Shards, str]:
    """Return rows of an experiment, the shards or the dataset to which they belong, and their origin in words.

    Without shards, data are read anew, unless they must be fetched.
    """
    origin = f"the first rows of experiment '{spec.experiment}'"
    if (spec.data_layout.shards / "zarr.json").exists():
        shards = Shards(spec.data_layout.shards)
        return shards.read_rows(0, min(MOST_ROWS, shards.num_rows)), shards, origin
    source_class, options = spec.component("source")
    if source_class.fetch is not Source.fetch:
        name = spec.experiment
        raise ConfigError(
            f"experiment '{name}': its data are not there",
            f"run `bayesmesh fetch --experiment {name}` and `bayesmesh shard --experiment {name}` first",
        )
    dataset: Dataset = source_class(options).read(Path())
    return {name: np.asarray(values[:]) for name, values in dataset.rows.items()}, dataset, origin


def _with_built_in_data(model: str) -> Subject:
    """Return the model with the first built-in source that has all fields it reads."""
    component_path("model", model)
    refusal, mistakes = "", list[tuple[str, ConfigError]]()
    for source in list_components("source"):
        source_class = load_component("source", source)
        if source_class.fetch is Source.fetch:
            dataset = source_class(resolve_component("source", source, {})[1]).read(Path())
            found = _subject(model, {}, dataset.rows, dataset, f"the first rows of source '{source}'")
            try:
                check_model(found.model_class, found.options, found.spec)
            except ConfigError as error:
                refusal = f"; with '{source}': {error.message}"
                if _NO_FIELD not in error.message:
                    mistakes.append((source, error))
                continue
            return found
    if mistakes:
        # The fields exist, so the model is wrong, or it is meant for other data.
        source, mistake = mistakes[0]
        raise ConfigError(
            f"with the built-in source '{source}': {mistake.message}",
            f"{mistake.remedy}; or give an experiment with other data: bayesmesh check {model} --experiment NAME",
        )
    raise ConfigError(
        f"model '{model}': no experiment uses it, and it reads none of the built-in data{refusal}",
        f"give an experiment with data that it reads: bayesmesh check {model} --experiment NAME",
    )


def _subject(
    name: str, given: Mapping[str, Any], rows: Mapping[str, np.ndarray], about: Dataset | Shards, origin: str
) -> Subject:
    try:
        model_class, options = resolve_component("model", name, given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"model '{name}': option {where}: {first['msg']}", "give an experiment that sets it: --experiment NAME"
        ) from error
    if model_class.reads_whole(options):
        rows = {k: v[None, :MOST_ROWS] for k, v in rows.items()}
    fields = {k: FieldSpec(v.shape[1:], v.dtype.name) for k, v in rows.items()}
    num_rows = len(next(iter(rows.values())))
    spec = DataSpec(num_rows, fields, about.constants, "float64", (), about.variables, about.labels, about.roles)
    spec, rows = prepare_rows(functools.partial(model_class.prepare, options), spec, rows)
    return Subject(name, origin, component_path("model", name), model_class, options, spec, rows).first(MOST_ROWS)
