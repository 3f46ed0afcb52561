"""Check at all rows that no likelihood takes an entry beyond the end of an array.

``effects[group]`` with a group that is too large takes the last entry, as JAX does, and a posterior of groups numbered from 1
looks as healthy as the right one. The check computes the likelihood once more from the same traced program, in which such
entries are NaN: where they are masked, or `mode` asks for the last entry, nothing changes. An index to a single entry under
`jax.vmap` looks like one with that mode, and is not checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun
from jaxtyping import Array, Bool

from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import READ_ROWS
from bayesmesh.errors import ConfigError
from bayesmesh.models._model_latents import align_local
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.sampling_density import device_dtype
from bayesmesh.sampling.sampling_row_check import QUICK, latents_at_point, place_of_likelihood
from bayesmesh.sampling.starts import ReadRows, training_row

_BYTES = 2**26
"""Rows that are in memory at once at most."""

_DEFAULT = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
"""Of ``array[index]``, which promises what this check verifies."""


def check_indices(
    model_class: type[Model], options: Any, spec: DataSpec, rows_here: tuple[int, int], read_rows: ReadRows
) -> None:
    """Refuse a likelihood that depends on entries beyond the end of an array; reads all rows if it indexes any.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.
        rows_here: first row of this process, and the one behind its last.
        read_rows: returns the rows of a range, as they are stored.

    Raises:
        ConfigError: names the method and the first such row.
    """
    model, (first, end) = model_class(options, spec), rows_here
    dtype = np.dtype(spec.dtype)
    of_row = max(1, sum(8 * math.prod(field.shape) for field in spec.fields.values()))
    count = max(1, min(end - first, READ_ROWS, _BYTES // of_row))
    shapes = {k: jax.ShapeDtypeStruct((count, *f.shape), device_dtype(f.dtype, dtype)) for k, f in spec.fields.items()}
    with explaining(method=model.log_likelihood):
        latents = jax.eval_shape(lambda: latents_at_point(model, spec))
        likelihood = jax.make_jaxpr(_likelihood(model))(latents, shapes, jax.ShapeDtypeStruct((count,), np.int64))
    marked = _mark(likelihood.jaxpr)
    if marked is likelihood.jaxpr:
        return
    evaluate = jax.jit(_is_beyond(likelihood, ClosedJaxpr(marked, likelihood.consts)), compiler_options=QUICK)
    at = jax.jit(lambda: latents_at_point(model, spec), compiler_options=QUICK)()
    for start in range(first, end, count):
        # The last call repeats a row.
        numbers = np.minimum(np.arange(start, start + count), end - 1)
        read = read_rows(start, min(start + count, end))
        rows = {k: jnp.asarray(v[numbers - start], shapes[k].dtype) for k, v in read.items()}
        beyond = np.asarray(evaluate(at, rows, np.asarray(spec.entries_of(numbers), np.int64)))
        if beyond.any():
            raise _error(model, spec, int(numbers[beyond.argmax()]), {k: v[beyond.argmax()] for k, v in rows.items()})


def _likelihood(model: Model) -> Callable[[Latents, Rows, Array], Array]:
    return lambda latents, rows, entries: model.log_likelihood(align_local(model, latents, entries), rows)


def _is_beyond(plain: ClosedJaxpr, marked: ClosedJaxpr) -> Callable[..., Bool[Array, " rows"]]:
    """Return the function of latents, rows and entries that says which rows have a value only without the marks."""

    def evaluate(*arguments: Any) -> Bool[Array, " rows"]:
        flat = jax.tree.leaves(arguments)
        (value,), (with_marks,) = jaxpr_as_fun(plain)(*flat), jaxpr_as_fun(marked)(*flat)
        return jnp.isnan(with_marks) & ~jnp.isnan(value)

    return evaluate


def _mark(jaxpr: Jaxpr) -> Jaxpr:
    """Return the program in which entries beyond the end of an array of real numbers are NaN; the same one if it takes none."""
    equations = [_mark_equation(each) for each in jaxpr.eqns]
    is_same = all(mine is each for mine, each in zip(equations, jaxpr.eqns, strict=True))
    return jaxpr if is_same else jaxpr.replace(eqns=equations)


def _mark_equation(equation: Any) -> Any:
    if equation.primitive is jax.lax.gather_p:
        is_real = jnp.issubdtype(equation.invars[0].aval.dtype, jnp.inexact)
        if not is_real or equation.params["mode"] is not _DEFAULT:
            return equation
        filled = {"mode": jax.lax.GatherScatterMode.FILL_OR_DROP, "fill_value": math.nan}
        return equation.replace(params={**equation.params, **filled})
    changed = {name: new for name, old in equation.params.items() if (new := _mark_parameter(old)) is not old}
    return equation.replace(params={**equation.params, **changed}) if changed else equation


def _mark_parameter(value: Any) -> Any:
    """Return a parameter of an equation with the programs in it marked, the same object if there are none."""
    match value:
        case Jaxpr():
            return _mark(value)
        case ClosedJaxpr():
            return value if (marked := _mark(value.jaxpr)) is value.jaxpr else value.replace(jaxpr=marked)
        case tuple():
            parts = tuple(map(_mark_parameter, value))
            return value if all(a is b for a, b in zip(parts, value, strict=True)) else parts
    return value


def _error(model: Model, spec: DataSpec, row: int, values: Mapping[str, Any]) -> ConfigError:
    """Return the error of a row, with its whole numbers, one of which is likely the index."""
    single = {k: float(values[k]) for k, field in spec.fields.items() if not field.shape}
    whole = [f"{k} {value:.0f}" for k, value in single.items() if value == np.floor(value)]
    has = f" ({', '.join(whole)})" if whole else ""
    named = "the data" if model.takes_all_rows or getattr(model.options, "whole", False) is True else training_row(row)
    return ConfigError(
        f"{place_of_likelihood(model)}: {named}{has}: an index is beyond the end of the array that it is taken from; JAX would"
        " take the last entry instead",
        "count from 0, such as effects[group - 1] of groups that are numbered from 1, and give the array as many entries as there"
        " are; where the last entry is meant, write effects.at[group].get(mode='clip')",
    )
