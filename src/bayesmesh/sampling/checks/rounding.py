"""Compare the log likelihood of stored draws, as it was sampled, with the sum over rows of `Model.log_likelihood` in float64.

Data and draws may be accurate in float32 while the formula of a likelihood loses accuracy, as in a difference of two times,
or with terms that are large relative to their sum. And a model's own `log_likelihood_and_gradient` may be right only at the
point at which it is checked before sampling. Chains then sample another density, which looks as healthy as the right one.

To first order, an error e in the log density shifts the posterior mean of a quantity f by cov(f, e), hence by at most sd(e)
times the posterior standard deviation of f. The check estimates sd(e), in nats, over some of the draws.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import zarr
from jaxtyping import Array, Float, Int

from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import READ_ROWS, Shards
from bayesmesh.errors import ConfigError
from bayesmesh.models._latents import align_local
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.position import resize_local
from bayesmesh.sampling.density.summaries import in_dtype, spread_evenly
from bayesmesh.store.arrays import read_part
from bayesmesh.store.layout import TOTAL
from bayesmesh.store.posterior.reader import Posterior

_log = logging.getLogger("bayesmesh")

NUM_DRAWS, FEWEST_DRAWS = 32, 8
"""Draws that are compared, and the fewest from which a standard deviation means anything."""

_BYTES = 2**26
"""Largest size of the draws, or rows, in memory at a time, in bytes."""

_LOST, _LOST_SPREADS = 50.0, 20.0
"""Nats below the median log likelihood, and multiples of its interquartile range, from which a draw is lost and not compared: at
-1e8, float32 has steps of 8 nats."""


def is_compared(model: Model, spec: DataSpec) -> bool:
    """Return whether chains may sample from a likelihood of these rows other than the exact one.

    It may be rounded, or summed by the model's own method, which may be right only at some points. Likelihoods of many datasets,
    and of sums over rows, are not compared.
    """
    return (spec.dtype == "float32" or model.has_fast_path()) and not spec.are_sums and not spec.dataset_counts


def lower_likelihood(
    model: Model, spec: DataSpec, latents: Mapping[str, jax.ShapeDtypeStruct], num_draws: int
) -> Iterator[jax.stages.Lowered]:
    """Yield the program that `likelihood_rounding` runs, unless the model's code does not accept float64.

    Args:
        model: the model.
        spec: its data.
        latents: latent -> shape and dtype of one draw.
        num_draws: of all chains together.
    """
    count = _rows_of_call(spec)
    rows = row_shapes(spec.with_dtype("float64"), count)
    # The latents of one program may be padded, or belong to one of several processes.
    stored = resize_local(latents, model.local_latents, spec.num_entries)
    num_compared = _num_compared({k: v.shape for k, v in stored.items()}, num_draws)
    draws = {k: jax.ShapeDtypeStruct((num_compared, *v.shape), np.float64) for k, v in stored.items()}
    entries, num_rows = jax.ShapeDtypeStruct((count,), np.int64), jax.ShapeDtypeStruct((), np.int32)
    with contextlib.suppress(ConfigError), explaining(method=model.log_likelihood):
        yield _compiled(model, spec).lower(draws, rows, entries, num_rows)


def likelihood_rounding(model: Model, spec: DataSpec, shards: Shards, posterior: Posterior) -> float | None:
    """Return the standard deviation over draws of the difference between the log likelihood and its value in float64, in nats.

    A difference that is the same for all draws does not count. Reads all rows once.

    Args:
        model: the model.
        spec: its data.
        shards: the data themselves.
        posterior: the draws, of which some, evenly spaced, are compared.

    Returns:
        The standard deviation; infinite if a draw has no finite value in float64; None if there are too few draws, or if the
        model's own code fails with latents and rows in float64, which is logged.
    """
    total = posterior.num_chains * posterior.num_draws
    arrays = {name: posterior.array("posterior", name) for name in posterior.latents}
    numbers = spread_evenly(total, _num_compared({k: a.shape[2:] for k, a in arrays.items()}, total))
    places = np.divmod(numbers, posterior.num_chains)
    draws = {name: _read_draws(array, *places).astype(np.float64) for name, array in arrays.items()}
    sampled = _read_draws(posterior.array("sample_stats", TOTAL), *places).astype(np.float64)
    try:
        with explaining(method=model.log_likelihood):
            found = _in_double(spec, shards, draws, _compiled(model, spec))
    except ConfigError as error:
        _log.warning(
            "warning: the log likelihood is not compared with its value in float64, which the model cannot compute: %s",
            error,
        )
        return None
    kept = ~is_lost(sampled)
    if kept.sum() < FEWEST_DRAWS:
        _log.info("the log likelihood is not compared with its value in float64: %d draws", kept.sum())
        return None
    return deviation(sampled[kept] - found[kept])


def is_lost(log_likelihood: Float[np.ndarray, " draw"]) -> Any:
    """Return whether each draw lies so far below the others that its rounding says nothing about them, (draw,) bool.

    >>> is_lost(np.array([-103.0, -101.0, -100.0, -102.0, -1e8, np.nan])).tolist()
    [False, False, False, False, True, True]
    """
    finite = log_likelihood[np.isfinite(log_likelihood)]
    if not len(finite):
        return np.ones(len(log_likelihood), bool)
    low, middle, high = np.quantile(finite, [0.25, 0.5, 0.75])
    return ~(log_likelihood >= middle - _LOST - _LOST_SPREADS * min(high - low, 2 * (high - middle)))


def deviation(differences: Float[np.ndarray, " draw"]) -> float:
    """Return the standard deviation of differences, infinite if any is not finite.

    >>> deviation(np.array([3.0, 5.0])), deviation(np.array([np.nan, 1.0]))
    (1.0, inf)
    """
    return float(differences.std()) if np.isfinite(differences).all() else math.inf


def _num_compared(shapes: Mapping[str, Sequence[int]], total: int) -> int:
    """Return how many draws are compared, for latents of these shapes."""
    of_draw = sum(8 * math.prod(shape) for shape in shapes.values())
    return min(total, max(FEWEST_DRAWS, min(NUM_DRAWS, _BYTES // max(1, of_draw))))


def _read_draws(array: zarr.Array, draw: Int[np.ndarray, " chosen"], chain: Int[np.ndarray, " chosen"]) -> np.ndarray:
    """Return chosen draws of an array (chain, draw, ...)."""
    if array.nbytes <= _BYTES:
        return np.asarray(read_part(array)[chain, draw])
    each = zip(chain.tolist(), draw.tolist(), strict=True)
    return np.stack([read_part(array, slice(c, c + 1), slice(d, d + 1))[0, 0] for c, d in each])


def _in_double(
    spec: DataSpec, shards: Shards, draws: Mapping[str, np.ndarray], evaluate: Callable[..., Any]
) -> Float[np.ndarray, " draw"]:
    """Return the log likelihood of draws, summed over all rows."""
    total, count, double = np.zeros(len(next(iter(draws.values())))), _rows_of_call(spec), spec.with_dtype("float64")
    on_device = jax.device_put(dict(draws))
    # Sorted rows are gathered from all of the data at every read.
    of_reading = count * max(1, _BYTES // (count * _row_bytes(spec)))
    for first in range(0, spec.num_rows, of_reading):
        read = shards.read_rows(first, min(first + of_reading, spec.num_rows))
        for start in range(first, min(first + of_reading, spec.num_rows), count):
            num_rows = min(count, spec.num_rows - start)
            # The last call repeats a row; the repeats do not count.
            numbers = np.minimum(np.arange(start, start + count), start + num_rows - 1)
            rows = in_dtype({k: v[numbers - first] for k, v in read.items()}, double)
            entries = np.asarray(spec.entries_of(numbers), np.int64)
            total += jax.device_get(evaluate(on_device, jax.device_put(rows), entries, np.int32(num_rows)))
    return total


def _rows_of_call(spec: DataSpec) -> int:
    return max(1, min(spec.num_rows, READ_ROWS, _BYTES // _row_bytes(spec)))


def _row_bytes(spec: DataSpec) -> int:
    return max(1, sum(8 * math.prod(field.shape) for field in spec.fields.values()))


def _compiled(model: Model, spec: DataSpec) -> jax.stages.Wrapped:
    """Return the function from float64 draws, rows, their entries and their number to the log likelihood of each draw."""
    double = type(model)(model.options, spec.with_dtype("float64"))

    def of_draw(latents: Latents, rows: Rows, entries: Array, num_rows: Array) -> Array:
        values = double.log_likelihood(align_local(model, latents, entries), rows)
        return jnp.sum(jnp.where(jnp.arange(len(values)) < num_rows, values, 0), dtype=jnp.float64)

    def of_draws(draws: Latents, rows: Rows, entries: Array, num_rows: Array) -> Array:
        # One draw after another: together they may take 32 times the memory if the model has large temporary arrays.
        found: Array = jax.lax.map(lambda each: of_draw(each, rows, entries, num_rows), draws)
        return found

    is_on_cpu = jax.default_backend() == "cpu"
    return jax.jit(of_draws, compiler_options={"xla_backend_optimization_level": 1} if is_on_cpu else None)
