"""Check at all rows that no likelihood takes an entry beyond the end of an array.

``effects[group]`` with a group that is too large takes the last entry, as JAX does, and a posterior of groups numbered from 1
looks as healthy as the right one. The check computes the likelihood once more from the same traced program, in which such
entries are NaN: where they are masked, or `mode` asks for the last entry, nothing changes. An index to a single entry under
`jax.vmap` looks like one with that mode, and is not checked.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

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
from bayesmesh.sampling.starts import ReadRows

BEYOND = "an index is beyond the end of the array that it is taken from; JAX would take the last entry instead"

_BYTES = 2**26
"""Rows that are in memory at once at most."""

_DEFAULT = jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS
"""Of ``array[index]``, which promises what this check verifies."""


class RowPart(NamedTuple):
    """Rows that are checked.

    Attributes:
        name_row: returns the name of a row by its number in the order of `read_rows`, from 0.
        first, end: the rows ``first`` to ``end - 1``.
        read_rows: returns the rows of a range, as they are stored.
    """

    name_row: Callable[[int], str]
    first: int
    end: int
    read_rows: ReadRows


def check_indices(model_class: type[Model], options: Any, spec: DataSpec, parts: Sequence[RowPart]) -> None:
    """Refuse a likelihood that depends on entries beyond the end of an array; reads all rows if it indexes any.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.
        parts: training rows, whose entries of local latents are those of their numbers, and behind them held-out rows.

    Raises:
        ConfigError: names the method and the first such row.
    """
    model, dtype = model_class(options, spec), np.dtype(spec.dtype)
    of_row = max(1, sum(8 * math.prod(field.shape) for field in spec.fields.values()))
    count = max(1, min(parts[0].end - parts[0].first, READ_ROWS, _BYTES // of_row))
    shapes = {k: jax.ShapeDtypeStruct((count, *f.shape), device_dtype(f.dtype, dtype)) for k, f in spec.fields.items()}
    with explaining(method=model.log_likelihood):
        latents = jax.eval_shape(lambda: latents_at_point(model, spec))
        entries = jax.ShapeDtypeStruct((count,), np.int64)
        evaluate = find_rows_beyond(likelihood_of_rows(model), latents, shapes, entries)
    if evaluate is None:
        return
    at = jax.jit(lambda: latents_at_point(model, spec), compiler_options=QUICK)()
    for part in parts:
        for start in range(part.first, part.end, count):
            # The last call repeats a row.
            numbers = np.minimum(np.arange(start, start + count), part.end - 1)
            read = part.read_rows(start, min(start + count, part.end))
            rows = {k: np.asarray(read[k][numbers - start], shape.dtype) for k, shape in shapes.items()}
            entry = spec.entries_of(numbers) if part is parts[0] else np.zeros(count)
            if (row := evaluate(at, rows, np.asarray(entry, np.int64))) is not None:
                raise _error(model, spec, part.name_row(int(numbers[row])), {k: v[row] for k, v in rows.items()})


def find_rows_beyond(function: Callable[..., Any], *arguments: Any) -> Callable[..., int | None] | None:
    """Return a function that finds the first row whose results depend on an entry beyond the end of an array.

    Args:
        function: returns arrays with an axis of rows in front.
        arguments: of the function, or their shapes and dtypes.

    Returns:
        The function, of arguments of these shapes; None if the function indexes no array of real numbers.
    """
    plain = jax.make_jaxpr(function)(*arguments)
    marked = _mark(plain.jaxpr)
    if marked is plain.jaxpr or not any(jnp.issubdtype(aval.dtype, jnp.inexact) for aval in plain.out_avals):
        return None
    programs = jaxpr_as_fun(plain), jaxpr_as_fun(ClosedJaxpr(marked, plain.consts))

    def is_beyond(*arguments: Any) -> Bool[Array, " rows"]:
        flat = jax.tree.leaves(arguments)
        with_and_without = zip(*(program(*flat) for program in programs), strict=True)
        changed = [jnp.isnan(b) & ~jnp.isnan(a) for a, b in with_and_without if jnp.issubdtype(a.dtype, jnp.inexact)]
        return functools.reduce(jnp.logical_or, [each.reshape(len(each), -1).any(1) for each in changed])

    evaluate = jax.jit(is_beyond, compiler_options=QUICK)

    def first_row(*arguments: Any) -> int | None:
        beyond = np.asarray(evaluate(*arguments))
        return int(beyond.argmax()) if beyond.any() else None

    return first_row


def likelihood_of_rows(model: Model) -> Callable[[Latents, Rows, Array], Array]:
    """Return the log likelihood of rows as a function of a draw, rows and the entries of local latents that these belong to."""
    return lambda latents, rows, entries: model.log_likelihood(align_local(model, latents, entries), rows)


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


def _error(model: Model, spec: DataSpec, row: str, values: Mapping[str, Any]) -> ConfigError:
    """Return the error of a row, with its whole numbers, one of which is likely the index."""
    single = {k: float(values[k]) for k, field in spec.fields.items() if not field.shape}
    whole = [f"{k} {value:.0f}" for k, value in single.items() if value == np.floor(value)]
    has = f" ({', '.join(whole)})" if whole else ""
    named = "the data" if model.reads_whole(model.options) else f"{row}{has}"
    return ConfigError(
        f"{place_of_likelihood(model)}: {named}: {BEYOND}",
        "count from 0, such as effects[group - 1] of groups that are numbered from 1, and give the array as many entries as there"
        " are; where the last entry is meant, write effects.at[group].get(mode='clip')",
    )
