"""Check before sampling that data and model fit each other and support the later stages."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence

import jax

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError, suggest
from bayesmesh.models.base import Model
from bayesmesh.planning.specs import StageSpec
from bayesmesh.sampling.monitored import summary_names
from bayesmesh.stages.context import in_file_of, model_of

_FEW_ROWS = 16

_ANALYSE = "bayesmesh.stages.analyse"
"""Loaded by name: the code of analyses is not that of the programs, which a change of it must not compile again."""


class _Named[T](dict[str, T]):
    """A mapping whose missing names are user errors."""

    def __init__(self, what: str, values: Mapping[str, T]) -> None:
        super().__init__(values)
        self.what = what

    def __missing__(self, name: str) -> T:
        raise ConfigError(
            f"key 'model.name': the model asks for the {self.what} '{name}'; the data have {', '.join(sorted(self)) or 'none'}",
            "choose a source that has it (key 'data.source'), or another model",
        )


def check_reading(spec: StageSpec, data_spec: DataSpec) -> None:
    """Check that the data have all fields that the model reads, without computing anything.

    Raises:
        ConfigError: a field or a constant is missing; the message names the experiment's file.
    """
    fields, constants = _Named("field", data_spec.fields), _Named("constant", data_spec.constants)
    # A few rows suffice, and keep a model fast that loops over them in Python.
    num_rows = min(data_spec.num_rows, _FEW_ROWS)
    named = dataclasses.replace(data_spec, num_rows=num_rows, fields=fields, constants=constants)
    rows = {
        name: jax.ShapeDtypeStruct((num_rows, *field.shape), field.dtype) for name, field in data_spec.fields.items()
    }
    with in_file_of(spec):
        model = model_of(spec, named)
        latents = _draw_shapes(model, named)
        jax.eval_shape(lambda draw, rows: model.log_likelihood(draw, _Named("field", rows)), latents, rows)


def check_later(later: Sequence[StageSpec], model: Model, data_spec: DataSpec, shards: Shards) -> None:
    """Check that data and model support the later stages.

    Args:
        later: specifications of the experiment's analyses, and of `sample` if it has a stopping rule.
        model: the model, bound to the data.
        data_spec: specification of the shards, in the experiment's dtype.
        shards: the data.

    Raises:
        ConfigError: they do not; the message names the experiment's file, the key and the reason.
    """
    for spec in later:
        if spec.stage == "sample":
            check_stop(spec, model, data_spec)
            continue
        importlib.import_module(_ANALYSE).check(spec, model, data_spec, shards, _draw_shapes(model, data_spec))


def check_stop(spec: StageSpec, model: Model, data_spec: DataSpec) -> list[str]:
    """Return the summaries that a stopping rule monitors, all of the model by default; none without a rule.

    Raises:
        ConfigError: the model lacks a named summary; the message names the experiment's file, the key and the nearest name.
    """
    rule, valid = spec.sampling.stop, summary_names(model, data_spec)
    if rule is None:
        return []
    named = {"summaries": rule.summaries or (), "max_mcse": tuple(rule.max_mcse or ())}
    for key, name in ((key, name) for key, names in named.items() for name in names if name not in valid):
        with in_file_of(spec):
            raise ConfigError(f"key 'sampling.stop.{key}': the model has no summary '{name}'", suggest(name, valid))
    # `max_mcse` names its own summaries; without other targets nothing else is computed.
    others = (rule.min_ess_bulk, rule.min_ess_tail, rule.max_r_hat)
    monitored = (rule.summaries or valid) if any(target is not None for target in others) else ()
    return sorted({*monitored, *named["max_mcse"]})


def _draw_shapes(model: Model, data_spec: DataSpec) -> dict[str, jax.ShapeDtypeStruct]:
    """Return shape and dtype of every latent of one draw."""
    shapes: dict[str, jax.ShapeDtypeStruct] = jax.eval_shape(
        lambda: model.prior(data_spec).sample(seed=jax.random.key(0))
    )
    return shapes
