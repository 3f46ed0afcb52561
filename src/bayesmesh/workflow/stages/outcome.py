"""Find the column that a model predicts."""

from __future__ import annotations

from typing import NamedTuple

import jax

from bayesmesh.data.base import Variable
from bayesmesh.data.shards import Shards
from bayesmesh.data.views import PreparedShards
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.traced_fields import field_returned


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
