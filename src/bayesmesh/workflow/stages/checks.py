"""Check before sampling that data and model fit each other and support the later stages."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bayesmesh.analyses.base import Analysis, BoundModel
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.indices import RowPart, check_indices
from bayesmesh.sampling.checks.model import (
    Shapes,
    check_axes,
    check_described,
    check_deterministics,
    check_model,
    check_predictions,
    check_shown,
    check_summaries,
)
from bayesmesh.sampling.checks.rows import FEWEST_ROWS, check_fast_path, check_rows, choose_rows
from bayesmesh.sampling.loop.monitor import summary_names
from bayesmesh.sampling.program.starts import training_row
from bayesmesh.workflow.components import Component, in_file_of, key_of_model
from bayesmesh.workflow.jobs import Job


def check_reading(job: Job, component: Component, data_spec: DataSpec) -> Shapes:
    """Check the model from shapes alone, and that the data have all that it reads; return the shapes of its latents.

    Raises:
        ConfigError: a mistake in the model, or a name that the data lack; the message names the experiment's file.
    """
    model_class, options = component
    for role in (role for role in data_spec.roles if role not in model_class.reads_roles):
        with in_file_of(job):
            raise ConfigError(
                f"key 'data.{role}': the model '{job.model.name}' would ignore the {role}",
                "leave the key out, or use a model that reads it, such as glm",
            )
    with in_file_of(job, key_of_model(job)):
        return check_model(model_class, options, data_spec)


def check_values(job: Job, model: Component, data_spec: DataSpec, shards: Shards, rows_here: tuple[int, int]) -> None:
    """Check that no index of the likelihood is beyond its array, and at three rows or more that each row's likelihood is its own.

    Raises:
        ConfigError: either does not hold; the message names the experiment's file.
    """
    first, end = rows_here
    with in_file_of(job, key_of_model(job)):
        order = functools.cache(shards.source_rows)
        training = RowPart(lambda row: training_row(int(order()[row])), first, end, shards.read_rows)
        check_indices(*model, data_spec, training, lambda: _rows_to_score(model[0], data_spec, shards))
        if end - first >= FEWEST_ROWS:
            check_rows(*model, data_spec, choose_rows(first, end, data_spec, shards.read_rows))
        elif model[0].has_fast_path() and end > first:
            check_fast_path(*model, data_spec, shards.read_rows(first, end))


def _rows_to_score(model: type[Model], data_spec: DataSpec, shards: Shards) -> list[RowPart]:
    """Return held-out rows and test rows, if they are rows like those of training; entries of local latents are left to the analyses."""
    parts: dict[str, Any] = (
        {} if model.local_latents else {"held-out row": shards.held_out(), "test row": shards.test_rows()}
    )
    return [_named_rows(name, rows) for name, rows in parts.items() if _are_like_training(data_spec, rows)]


def _are_like_training(data_spec: DataSpec, rows: object) -> bool:
    if not isinstance(rows, dict) or not set(data_spec.fields) <= set(rows):
        return False
    return all(rows[name].shape[1:] == field.shape for name, field in data_spec.fields.items())


def _named_rows(name: str, rows: dict[str, np.ndarray]) -> RowPart:
    read = lambda start, stop: {field: values[start:stop] for field, values in rows.items()}  # noqa: E731
    return RowPart(lambda row: f"{name} {row + 1}", 0, len(next(iter(rows.values()))), read)


def check_later(job: Job, later: Sequence[Job], analyses: Iterable[Analysis], bound: BoundModel, latents: Any) -> None:
    """Check that data and model support the later stages.

    Args:
        job: specification of `compile`.
        later: specifications of `assemble`, and of `sample` if it has a stopping rule.
        analyses: those of the experiment.
        bound: the model, bound to the data.
        latents: latent -> shape and dtype of one draw.

    Raises:
        ConfigError: they do not; the message names the experiment's file, the key and the reason.
    """
    for each in later:
        if each.stage == "sample":
            check_stop(each, bound.model, bound.data_spec)
        else:
            check_derived(each, bound.model, bound.data_spec, latents)
    with in_file_of(job):
        for analysis in analyses:
            analysis.check(bound, latents)


def check_derived(job: Job, model: Model, data_spec: DataSpec, latents: Shapes) -> None:
    """Check all that `assemble` derives from draws: summaries, and predictions unless the experiment wants none.

    Raises:
        ConfigError: a mistake in one of the model's methods; the message names the experiment's file.
    """
    with in_file_of(job, key_of_model(job)):
        summaries = check_summaries(model, latents, data_spec)
        check_deterministics(model, latents, data_spec)
        check_axes(model, latents, summaries)
        check_shown(model, latents, summaries)
        check_described(model)
        if job.posterior.pointwise_mebibytes and model.has_predictions:
            check_predictions(model, latents, data_spec)


def check_stop(job: Job, model: Model, data_spec: DataSpec) -> list[str]:
    """Return the summaries that a stopping rule monitors, all of the model by default; none without a rule.

    Raises:
        ConfigError: the model lacks a named summary; the message names the experiment's file, the key and the nearest name.
    """
    rule, valid = job.sampling.stop, summary_names(model, data_spec)
    if rule is None:
        return []
    named = {"summaries": rule.summaries or (), "max_mcse": tuple(rule.max_mcse or ())}
    for key, name in ((key, name) for key, names in named.items() for name in names if name not in valid):
        with in_file_of(job):
            raise ConfigError(f"key 'sampling.stop.{key}': the model has no summary '{name}'", suggest(name, valid))
    # `max_mcse` names its own summaries; without other targets nothing else is computed.
    others = (rule.min_ess_bulk, rule.min_ess_tail, rule.max_r_hat)
    monitored = (rule.summaries or valid) if any(target is not None for target in others) else ()
    return sorted({*monitored, *named["max_mcse"]})
