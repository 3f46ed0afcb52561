"""Choose the further quantities of a model that are stored with its draws, and compute them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.sampling.density.summaries import compiled_for_blocks, in_dtype, map_draws
from bayesmesh.store.layout import DETERMINISTICS
from bayesmesh.store.posterior.reader import Posterior

MOST_BYTES = 256 * 2**20
"""Limit on the stored quantities of all draws together, and on the rows from which they are computed."""


class Choice(NamedTuple):
    """The quantities that are stored.

    Attributes:
        names: their names.
        num_rows: number of rows at which they are computed: all, or one where none of them depends on the rows.
        warnings: which are left out, and why.
    """

    names: tuple[str, ...]
    num_rows: int
    warnings: tuple[str, ...]


def choose_deterministics(
    model: Model, spec: DataSpec, latents: Mapping[str, jax.ShapeDtypeStruct], num_draws: int
) -> Choice:
    """Choose from shapes alone, so that nothing grows with draws x rows beyond a limit.

    Args:
        model: the model.
        spec: its data.
        latents: latent -> shape and dtype of one draw.
        num_draws: draws of all chains.
    """
    if type(model).deterministics is Model.deterministics:
        return Choice((), 1, ())
    whole, one = (_traced(model, spec, latents, number) for number in (spec.num_rows, 1))
    of_rows = {name for name in whole if whole[name].uses_rows or whole[name].shape != one[name].shape}
    field_bytes = sum(np.dtype(f.dtype).itemsize * math.prod(f.shape) for f in spec.fields.values()) * spec.num_rows
    names, left, total = [], {}, 0
    for name, found in whole.items():
        size = num_draws * found.num_bytes
        if name in of_rows and field_bytes > MOST_BYTES:
            left[name] = f"depends on the rows, which take {field_bytes / 2**20:,.0f} MiB"
        elif total + size > MOST_BYTES:
            left[name] = f"would take {size / 2**20:,.0f} MiB in {num_draws:,} draws"
        else:
            names.append(name)
            total += size
    remedy = f"at most {MOST_BYTES // 2**20} MiB are stored; compute it from the stored latents where you need it"
    warnings = tuple(
        f"the deterministic '{name}' is not stored: it {problem}; {remedy}" for name, problem in left.items()
    )
    return Choice(tuple(names), spec.num_rows if of_rows & {*names} else 1, warnings)


class _Quantity(NamedTuple):
    shape: tuple[int, ...]
    num_bytes: int
    uses_rows: bool


def _traced(
    model: Model, spec: DataSpec, latents: Mapping[str, jax.ShapeDtypeStruct], num_rows: int
) -> dict[str, _Quantity]:
    """Return shape and size of each quantity, and whether it depends on the values of the rows."""
    rows = row_shapes(spec, num_rows)
    draw = resize_local(latents, model.local_latents, num_rows)
    traced, shapes = jax.make_jaxpr(model.deterministics, return_shape=True)(draw, rows)
    found = {}
    for place, (name, shape) in enumerate(sorted(shapes.items())):
        _, is_used = partial_eval.dce_jaxpr(traced.jaxpr, [i == place for i in range(len(shapes))])
        size = shape.dtype.itemsize * math.prod(shape.shape)
        found[name] = _Quantity(shape.shape, size, any(is_used[len(draw) :]))
    return found


def derive_deterministics(model: Model, spec: DataSpec, shards: Shards, posterior: Posterior) -> dict[str, np.ndarray]:
    """Return name -> (chain, draw, ...) of the chosen quantities.

    Args:
        model: the model.
        spec: its data.
        shards: the data themselves.
        posterior: the draws.
    """
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    latents = {name: jax.ShapeDtypeStruct(array.shape[2:], array.dtype) for name, array in arrays.items()}
    names, num_rows, _ = choose_deterministics(model, spec, latents, posterior.num_chains * posterior.num_draws)
    if not names:
        return {}

    def chosen(draw: Latents, rows: Rows, _: jax.Array) -> Latents:
        found = model.deterministics(draw, rows)
        return {name: found[name] for name in names}

    given = in_dtype(shards.read_rows(0, num_rows), spec)
    entries = spec.entries_of(np.arange(num_rows))
    return map_draws(posterior, model, given, entries, compiled_for_blocks(DETERMINISTICS, chosen))
