"""Bind models that take all rows as one to some of the rows, and check whether rows of such a model can be left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bayesmesh.analyses.base import BoundModel, unsuitable
from bayesmesh.analyses.options import KFoldOptions as Options
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Latents, Model
from bayesmesh.store.posterior.reader import BLOCK_BYTES, CHUNK_DRAWS, Posterior, in_dtype, iterate_chunks

KEY = "k_fold"

NUM_TRIED = 4
"""Number of prior draws at which the likelihood of reordered rows is computed."""

_ORDER_TOLERANCE = 1e-3
"""Largest relative difference of two log likelihoods that float32 rounding explains."""


class SomeRows:
    """A model bound to some rows, which it takes as one.

    Args:
        model: a model that takes all rows as one, bound to any rows.
        spec: its data.
        rows: field -> (row, ...), as the source has them.
        dtype: of floating-point fields and of the log likelihood.
    """

    def __init__(self, model: Model, spec: DataSpec, rows: Mapping[str, np.ndarray], dtype: str) -> None:
        whole = {name: values[None] for name, values in rows.items()}
        fields = {name: FieldSpec(values.shape, values.dtype.name) for name, values in rows.items()}
        found = dataclasses.replace(spec, num_rows=1, fields=fields, dtype=dtype)
        # A model that holds its data is rebuilt from these rows.
        preparation = type(model).prepare(model.options, found, lambda: iter([whole]))
        if preparation is not None:
            found = dataclasses.replace(found, constants={**spec.constants, **preparation.constants})
        self.spec, self.model = found, type(model)(model.options, found)
        self._rows = {k: jnp.asarray(in_dtype(v, dtype)) for k, v in whole.items()}

    def log_likelihood(self, draw: Latents) -> jax.Array:
        """Return the log likelihood of these rows together at one draw, in nats."""
        return self.model.log_likelihood(draw, self._rows)[0]


def log_ratios(posterior: Posterior, larger: SomeRows, smaller: SomeRows) -> Float[np.ndarray, "chain draw"]:
    """Return log p(larger rows | draw) - log p(smaller rows | draw) at all draws, float64, in nats.

    Draws are evaluated one at a time, so that memory is that of one evaluation, as in one step of a chain.
    """

    def ratio(draw: Latents) -> jax.Array:
        return larger.log_likelihood(draw) - smaller.log_likelihood(draw)

    program = jax.jit(lambda latents: jax.lax.map(ratio, latents))
    found = np.empty(posterior.num_chains * posterior.num_draws)
    for first, count, latents in iterate_chunks(posterior, larger.spec.dtype, CHUNK_DRAWS, BLOCK_BYTES):
        found[first : first + count] = np.asarray(program(latents))[:count]
    return found.reshape(posterior.num_draws, posterior.num_chains).T


def check_whole(bound: BoundModel, options: Options) -> None:
    """Check that a model that takes all rows as one has the same latents and a likelihood for fewer rows.

    Args:
        bound: model and all data.
        options: how rows are left out.

    Raises:
        ConfigError: rows of this model cannot be left out this way; the message says why.
    """
    model, spec, shards = bound
    rows = {name: values[0] for name, values in shards.read_rows(0, 1).items()}
    num_rows = shards.num_observations
    fewer = {name: values[: max(1, num_rows // 2)] for name, values in rows.items()}
    everything, some = (SomeRows(model, spec, each, spec.dtype) for each in (rows, fewer))
    _check_latents(everything, some)
    field = options.future
    is_sorted = (
        field is not None and rows.get(field, np.zeros((0, 0))).ndim == 1 and bool((np.diff(rows[field]) >= 0).all())
    )
    if not is_sorted:
        # Reversal alone is not enough: many a series is as likely in reverse.
        orders = (np.arange(num_rows)[::-1], np.random.default_rng(0).permutation(num_rows))
        others = [SomeRows(model, spec, {k: v[order] for k, v in rows.items()}, spec.dtype) for order in orders]
        _check_order(everything, others, field)


def _check_latents(everything: SomeRows, some: SomeRows) -> None:
    """Check that latents have the same shapes, and that the likelihood of fewer rows can be computed at them."""
    name = type(some.model).__name__
    shapes = [
        jax.eval_shape(lambda each=each: each.model.prior(each.spec).sample(seed=jax.random.key(0)))
        for each in (everything, some)
    ]
    differing = [k for k in shapes[0] if k not in shapes[1] or shapes[0][k].shape != shapes[1][k].shape]
    if differing:
        problem = f"model {name} has latents for each row ({', '.join(sorted(differing))})"
        raise unsuitable(KEY, f"{problem}: draws without a row have none for it, under which it could be scored")
    try:
        jax.eval_shape(some.log_likelihood, shapes[0])
    except (TypeError, ValueError, IndexError) as error:
        first = str(error).strip().splitlines()[0]
        raise unsuitable(
            KEY, f"model {name} has no likelihood of fewer rows, so that none can be left out: {first}"
        ) from error


def _check_order(everything: SomeRows, others: Sequence[SomeRows], field: str | None) -> None:
    """Refuse a likelihood that depends on row order, unless the rows left out come after all rows that stay."""
    name, num_compared = type(everything.model).__name__, 0
    prior = everything.model.prior(everything.spec)
    for key in jax.random.split(jax.random.key(3), NUM_TRIED):
        draw = prior.sample(seed=key)
        found = float(everything.log_likelihood(draw))
        for other in (float(each.log_likelihood(draw)) for each in others):
            if not np.isfinite([found, other]).all():
                continue
            num_compared += 1
            if abs(found - other) > _ORDER_TOLERANCE * max(1.0, abs(found)):
                raise _ordered(f"the log likelihood of model {name} depends on the order of the rows ({found:.6g}, and "
                               f"{other:.6g} in another order)", field)  # fmt: skip
    if not num_compared:
        raise unsuitable(
            KEY,
            f"the log likelihood of model {name} is not finite at {NUM_TRIED} draws of its prior, so that nothing shows "
            "whether it depends on the order of the rows; narrow the prior, or set `compute: {dtype: float64}`",
        )


def _ordered(problem: str, field: str | None) -> ConfigError:
    """Return the error for a likelihood that depends on row order."""
    problem += ": without a row in their midst, the others would count as neighbours"
    if field is not None:
        return unsuitable(f"{KEY}.future", f"{problem}, and the data are not in the order of '{field}'")
    return unsuitable(KEY, f"{problem}; `future: FIELD` leaves out what comes last, of rows in the order of that field")
