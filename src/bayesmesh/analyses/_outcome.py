"""Find the column that a model predicts, and the names of its classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from bayesmesh.data.base import Variable
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import PreparedShards
from bayesmesh.models._traced_fields import field_returned
from bayesmesh.models.base import Model


class Outcome(NamedTuple):
    """What is predicted.

    Attributes:
        name: of the column; ``outcome`` if it is not one column.
        levels: names of its classes.
        mean, scale: of a standardised column: predictions are given in the unit of the table.
    """

    name: str
    levels: tuple[str, ...]
    mean: float
    scale: float


def find_outcome(model: Model, shards: Shards) -> Outcome:
    """Return the column that is the outcome: the one that the model names, or else the one that it returns as its outcome."""
    plain, name = Shards(shards.path), model.outcome_field()
    if name is None and not isinstance(shards, PreparedShards):
        fields = shards.spec().fields.items()
        name = field_returned(model.outcome, {k: jax.ShapeDtypeStruct((1, *f.shape), f.dtype) for k, f in fields})
    if name is None or name not in plain.fields:
        return Outcome("outcome", (), 0.0, 1.0)
    about = plain.variables.get(name, Variable("number"))
    return Outcome(name, about.levels, about.mean, about.scale)


def class_names(outcome: Outcome, num_classes: int) -> Sequence[str]:
    """Return the classes whose probabilities are given: for two classes, only the second."""
    if num_classes == 1:
        return (outcome.levels[1] if len(outcome.levels) == 2 else "1",)
    return outcome.levels if len(outcome.levels) == num_classes else [str(i) for i in range(num_classes)]
