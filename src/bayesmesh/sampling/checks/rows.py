"""Check at some rows that a likelihood computes each row's value from that row alone, and that its fast path gives the same sum.

Shapes cannot show this: a model that takes a mean over the rows it is given, or reads the row a season earlier, has a
posterior that depends on tiles and devices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.config.user_code import explaining, load_function, place_of
from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models._latents import align_local, bijector_of
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.rows import ReadRows
from bayesmesh.sampling.density.summaries import in_dtype

FEWEST_ROWS, MOST_ROWS = 3, 509
"""Fewest and most rows that are compared. A shift by more rows than these, or by a multiple of their number, would not show; 509
is a prime, and more than the hours in two weeks or the days in a year."""

_BYTES = 2**24
"""Largest size of the rows in memory, in bytes, unless three rows take more."""

_RELATIVE = {"float32": 1e-3, "float64": 1e-8}
"""Difference that rounding can explain, relative to the largest for sums and slopes, and to itself or the median row for a row's value."""

_OF_A_SOLVER = 1e-3
"""Relative difference that the tolerance of an iterative solver may explain."""

QUICK = {"xla_backend_optimization_level": 0}
"""Options for a program that runs once, on few rows: compiling it takes nearly all the time."""


_Sum = tuple[jax.Array, Mapping[str, jax.Array]]
"""A log likelihood, (), and its gradient with respect to latents."""


class _Values(NamedTuple):
    """Log likelihoods of rows, (row,), of the last two in reverse, and of each row alone. For a model with a fast path, also the sum
    over the first and the last row, by the plain path and by the fast one."""

    whole: jax.Array
    part: jax.Array
    alone: jax.Array
    sums: tuple[_Sum, _Sum] | None


def choose_rows(first: int, end: int, spec: DataSpec, read_rows: ReadRows) -> dict[str, np.ndarray]:
    """Read the rows that `check_rows` compares: the first, a block in the middle, and the last, of rows `first` to ``end - 1``.

    Among them are neighbours, which a model may read, and rows that lie far apart, such as the largest of a sorted table.
    """
    of_row = max(1, sum(8 * math.prod(field.shape) for field in spec.fields.values()))
    between = min(end - first, MOST_ROWS, max(FEWEST_ROWS, _BYTES // of_row)) - 2
    start = first + (end - first - between) // 2
    parts = [read_rows(first, first + 1), read_rows(start, start + between), read_rows(end - 1, end)]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def check_rows(model_class: type[Model], options: Any, spec: DataSpec, rows: Mapping[str, np.ndarray]) -> None:
    """Compare the values of rows computed among many rows with those among few, and the fast path of the sum with the plain one.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.
        rows: field -> (row, ...), at least three rows of the data, from `choose_rows`.

    Raises:
        ConfigError: the value of a row depends on the other rows, or `log_likelihood_and_gradient` differs from
            `log_likelihood`; the message names file, line and method.
    """
    few = dataclasses.replace(spec, num_rows=len(next(iter(rows.values()))))
    model = model_class(options, few)
    with explaining(method=model.log_likelihood):
        evaluate = jax.jit(lambda data: _evaluate(model, few, data), compiler_options=QUICK)
        found = jax.device_get(evaluate(in_dtype(rows, spec)))
    scale = _RELATIVE[np.dtype(spec.dtype).name]
    # A statistic such as a maximum may be the same for the pair and for all rows, and for a single row it may not be finite.
    for number, fewer in (("two", found.part[::-1]), ("one", found.alone)):
        among = found.whole[-len(fewer) :]
        differing = _differing(among, fewer, scale)
        if not len(differing):
            continue
        raise _row_error(model, float(among[differing[0]]), float(fewer[differing[0]]), few.num_rows, number)
    if found.sums is not None:
        plain, fast = found.sums
        _compare_sums(model, plain, fast, scale)


def check_fast_path(model_class: type[Model], options: Any, spec: DataSpec, rows: Mapping[str, np.ndarray]) -> None:
    """Compare the fast path of the sum over a few rows with the plain one, for example for data that are one row.

    Args:
        model_class, options, spec: as for `check_rows`.
        rows: field -> (row, ...).

    Raises:
        ConfigError: `log_likelihood_and_gradient` differs from `log_likelihood`; the message names file, line and method.
    """
    few = dataclasses.replace(spec, num_rows=len(next(iter(rows.values()))))
    model = model_class(options, few)

    def both(data: dict[str, jax.Array]) -> tuple[_Sum, _Sum]:
        latents, entries = latents_at_point(model, few), jnp.asarray(few.entries_of(np.arange(few.num_rows)))
        return _sum_both_ways(model, align_local(model, latents, entries), data, [True] * few.num_rows)

    with explaining(method=model.log_likelihood_and_gradient):
        plain, fast = jax.device_get(jax.jit(both, compiler_options=QUICK)(in_dtype(rows, spec)))
    _compare_sums(model, plain, fast, _RELATIVE[np.dtype(spec.dtype).name])


def _compare_sums(model: Model, plain: _Sum, fast: _Sum, relative: float) -> None:
    """Refuse a fast path that gives another sum of rows, or another gradient."""
    for name, one, other in (
        ("its value", plain[0], fast[0]),
        *((f"its gradient by '{k}'", gradient, fast[1][k]) for k, gradient in plain[1].items()),
    ):
        if not _agree(one, other, relative):
            raise ConfigError(
                f"{place_of(model.log_likelihood_and_gradient)}: {name} is not that of the sum of log_likelihood over"
                " the rows where `is_row` is true",
                "correct it, or leave the method out: Model.log_likelihood_and_gradient then differentiates log_likelihood",
            )


def _row_error(model: Model, among: float, alone: float, num_rows: int, number: str) -> ConfigError:
    """Return the error for a row that has one value among the others and another among fewer."""
    is_small = abs(among - alone) < _OF_A_SOLVER * max(1.0, abs(among))
    solver = "; a solver that stops for all rows at once depends on them: solve each row by itself, with `jax.vmap`, or to a smaller tolerance" if is_small else ""  # fmt: skip
    digits = ".17g" if is_small else ".6g"
    return ConfigError(
        f"{place_of_likelihood(model)}: the value of a row changes with the rows beside it: {among:{digits}} among {num_rows} rows,"
        f" {alone:{digits}} among {number}",
        "compute each row's value from that row and the latents alone: no mean, sum, sort, shift or count over the axis of rows;"
        f" numbers of the whole dataset belong into the data{solver}{_whole(model)}",
    )


def _whole(model: Model) -> str:
    """Return the alternative remedy for a model that can take all rows as one."""
    has_option = getattr(model.options, "whole", None) is False
    return "; or take all data as one row:\n    model:\n      whole: true" if has_option else ""


def place_of_likelihood(model: Model) -> str:
    """Return file, line and name of the user's function that defines a model, or else of its method."""
    function = getattr(model.options, "function", None)
    return place_of(load_function(function) if function else model.log_likelihood)


def latents_at_point(model: Model, spec: DataSpec) -> dict[str, jax.Array]:
    """Return the latents of a point of moderate size in unconstrained space, however vague the prior is."""
    prior = model.prior(spec.with_dtype("float64"))
    bijector = bijector_of(prior)
    like = jax.eval_shape(lambda: bijector.inverse(prior.sample(seed=jax.random.key(0))))
    # Constants, because a random number generator would be most of the program.
    random = np.random.default_rng(1)
    point = jax.tree.map(lambda x: jnp.asarray(0.3 * random.standard_normal(x.shape), x.dtype), like)
    return {k: v.astype(spec.dtype) for k, v in bijector.forward(point).items()}


def _evaluate(model: Model, spec: DataSpec, rows: Mapping[str, jax.Array]) -> _Values:
    latents = latents_at_point(model, spec)

    def of(order: list[int]) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
        at = jnp.asarray(order)
        entries = jnp.asarray(spec.entries_of(np.asarray(order)))
        return align_local(model, latents, entries), {k: v[at] for k, v in rows.items()}

    every = of(list(range(spec.num_rows)))
    axes = model.local_latents
    local = {k: jnp.moveaxis(every[0][k], axis, 0)[:, None] for k, axis in axes.items()}

    def alone(local: dict[str, jax.Array], row: dict[str, jax.Array]) -> jax.Array:
        own = {k: jnp.moveaxis(v, 0, axes[k]) for k, v in local.items()}
        return model.log_likelihood({**every[0], **own}, row).reshape(())

    return _Values(
        model.log_likelihood(*every),
        model.log_likelihood(*of([spec.num_rows - 1, spec.num_rows - 2])),
        jax.vmap(alone)(local, {k: v[:, None] for k, v in every[1].items()}),
        _sum_both_ways(model, *of([0, 1, spec.num_rows - 1]), [True, False, True]) if model.has_fast_path() else None,
    )


def _sum_both_ways(
    model: Model, latents: dict[str, jax.Array], rows: dict[str, jax.Array], counts: list[bool]
) -> tuple[_Sum, _Sum]:
    """Return the log likelihood of the rows that count, and its gradient, by the plain path and by the fast one."""
    is_row = jnp.asarray(counts)

    def summed(draw: dict[str, jax.Array]) -> jax.Array:
        return jnp.sum(jnp.where(is_row, model.log_likelihood(draw, rows), 0))

    plain = jax.value_and_grad(summed)(latents)
    value, gradient = model.log_likelihood_and_gradient(latents, rows, is_row)
    return plain, (value, {k: gradient[k] for k in plain[1]})


def _agree(one: Any, other: Any, relative: float) -> bool:
    """Return whether values differ only by rounding where the first are finite; starts and gates report non-finite ones."""
    one, other = (np.asarray(x, np.float64) for x in (one, other))
    known = np.isfinite(one)
    one, other = one[known], other[known]
    return bool((np.abs(one - other) <= relative * max(1.0, np.abs(one).max(initial=0.0))).all())


def _differing(one: np.ndarray, other: np.ndarray, relative: float) -> np.ndarray:
    """Return the places where the values of rows differ by more than rounding, the worst first; a large row does not hide others.

    >>> _differing(np.array([-3.0, -2.0, -9e9]), np.array([-3.0, -2.5, -9e9]), 1e-3).tolist()
    [1]
    """
    one, other = (np.asarray(x, np.float64) for x in (one, other))
    known = np.flatnonzero(np.isfinite(one) & np.isfinite(other))
    if not len(known):
        return known
    size = np.abs(one[known])
    ratio = np.abs(one[known] - other[known]) / np.maximum(size, max(1.0, float(np.median(size))))
    worst = known[np.argsort(-ratio)]
    return worst[: int((ratio > relative).sum())]
