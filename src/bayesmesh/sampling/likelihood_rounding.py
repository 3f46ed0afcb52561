"""Compare the log likelihood of stored draws, as it was sampled, with its value in float64.

Data and draws may keep their values in float32 while the formula of a likelihood does not: a difference of two times, or
terms that are large beside their sum. Chains then sample another density, which looks as healthy as the right one.

What is added to a log density, e, moves the mean of any quantity f by cov(f, e) to first order, so at most by sd(e) of f's own
standard deviations. The standard deviation over draws, in nats, is therefore what is measured.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.chain_position import resize_local
from bayesmesh.sampling.sampling_density import device_dtype
from bayesmesh.store.posterior_reader import Posterior

_log = logging.getLogger("bayesmesh")

NUM_DRAWS = 32
"""Draws that are compared. Half of them decide, so that a few lost chains do not."""

_MOST_ROWS = 2**15
_BYTES_OF_ROWS = 2**25
"""What one call of the program takes at most."""

_TO_SD = 1.4826
"""Standard deviation of a normal distribution, in its median absolute deviations."""


def is_rounded(spec: DataSpec) -> bool:
    """Return whether the likelihood of these data may be rounded, and is compared: not that of many datasets."""
    return spec.dtype == "float32" and not spec.dataset_counts


def lower_likelihood(
    model: Model, spec: DataSpec, latents: Mapping[str, jax.ShapeDtypeStruct], num_draws: int
) -> Iterator[jax.stages.Lowered]:
    """Yield the program that `likelihood_rounding` runs, if it runs any.

    Args:
        model: the model.
        spec: its data.
        latents: latent -> shape and dtype of one draw.
        num_draws: of all chains together, in the first block of the posterior.
    """
    if not is_rounded(spec):
        return
    count = _rows_of_call(spec)
    rows = {k: jax.ShapeDtypeStruct((count, *f.shape), device_dtype(f.dtype, np.dtype("float64"))) for k, f in spec.fields.items()}  # fmt: skip
    aligned = resize_local(latents, model.local_latents, count)
    draws = {k: jax.ShapeDtypeStruct((min(num_draws, NUM_DRAWS), *v.shape), np.float64) for k, v in aligned.items()}
    with contextlib.suppress(ConfigError), explaining(method=model.log_likelihood):
        yield _compiled(model, spec).lower(draws, rows, jax.ShapeDtypeStruct((), np.int32))


def likelihood_rounding(
    model: Model, spec: DataSpec, shards: Shards, posterior: Posterior, program: Callable[..., Any] | None = None
) -> float | None:
    """Return by how much the log likelihood of a draw differs from its value in float64: a standard deviation over draws, in nats.

    What is the same for all draws does not count. Reads all rows once.

    Args:
        model: the model.
        spec: its data.
        shards: the data themselves.
        posterior: the draws; those of its first block are compared, evenly spaced.
        program: of `lower_likelihood`, compiled; compiled here if None.

    Returns:
        The standard deviation; infinite where most draws have no finite value in float64; None where nothing is rounded,
        and where the model's own code fails with latents and rows of float64, which the log says.
    """
    if not is_rounded(spec):
        return None
    block, sampled = next(posterior.blocks()), next(posterior.blocks(["log_likelihood"], group="sample_stats"))
    there = min(len(next(iter(block.values()))), len(sampled["log_likelihood"]))
    chosen = np.unique(np.linspace(0, there - 1, NUM_DRAWS).round().astype(np.int64))
    draws = {k: v[chosen].astype(np.float64) for k, v in block.items()}
    try:
        with explaining(method=model.log_likelihood):
            total = _in_double(model, spec, shards, draws, program or _compiled(model, spec))
    except ConfigError as error:
        _log.warning(
            "warning: the log likelihood is not compared with its value in float64, which the model cannot compute: %s",
            error,
        )
        return None
    return deviation(sampled["log_likelihood"][chosen].astype(np.float64) - total)


def _in_double(
    model: Model, spec: DataSpec, shards: Shards, draws: Mapping[str, np.ndarray], evaluate: Callable[..., Any]
) -> Float[np.ndarray, " draw"]:
    """Return the log likelihood of draws, summed over all rows."""
    total, count = np.zeros(len(next(iter(draws.values())))), _rows_of_call(spec)
    for start in range(0, spec.num_rows, count):
        num_rows = min(count, spec.num_rows - start)
        # The last call repeats a row, which does not count.
        numbers = np.minimum(np.arange(start, start + count), start + num_rows - 1)
        read = shards.read_rows(start, start + num_rows)
        rows = {k: v[numbers - start].astype(device_dtype(v.dtype.name, np.dtype("float64"))) for k, v in read.items()}
        entries = spec.entries_of(numbers)
        aligned = {k: np.take(draws[k], entries, axis=1 + axis) for k, axis in model.local_latents.items()}
        total += jax.device_get(evaluate({**draws, **aligned}, jax.device_put(rows), np.int32(num_rows)))
    return total


def deviation(differences: Float[np.ndarray, " draw"]) -> float:
    """Return the standard deviation of differences by their median absolute deviation; infinite where most are not finite.

    >>> deviation(np.array([3.0, 3.1, 2.9, 3.0, 1e9])), deviation(np.array([np.nan, np.inf, 1.0]))
    (0.14826, inf)
    """
    finite = differences[np.isfinite(differences)]
    if 2 * len(finite) <= len(differences):
        return math.inf
    # Rounded here, because float64 has no more digits of a large log likelihood.
    return float(np.round(_TO_SD * np.median(np.abs(finite - np.median(finite))), 12))


def _rows_of_call(spec: DataSpec) -> int:
    of_row = sum(8 * math.prod(field.shape) for field in spec.fields.values())
    return max(1, min(spec.num_rows, _MOST_ROWS, _BYTES_OF_ROWS // max(1, of_row)))


def _compiled(model: Model, spec: DataSpec) -> jax.stages.Wrapped:
    """Return the function from draws in float64, rows, and their number, to the log likelihood of each draw."""
    double = type(model)(model.options, spec.with_dtype("float64"))

    def of_draw(latents: Latents, rows: Rows, num_rows: Array) -> Array:
        values = double.log_likelihood(latents, rows)
        return jnp.sum(jnp.where(jnp.arange(len(values)) < num_rows, values, 0), dtype=jnp.float64)

    def of_draws(draws: Latents, rows: Rows, num_rows: Array) -> Array:
        # One after the other: together they may take 32 times the memory of a model with large temporary arrays.
        found: Array = jax.lax.map(lambda each: of_draw(each, rows, num_rows), draws)
        return found

    is_on_cpu = jax.default_backend() == "cpu"
    return jax.jit(of_draws, compiler_options={"xla_backend_optimization_level": 1} if is_on_cpu else None)
