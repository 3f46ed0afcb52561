"""Check at all rows that no likelihood reads an entry beyond the end of an array, or writes one there.

In JAX, ``effects[group]`` with a group that is too large reads the last entry, and the posterior with groups numbered from 1
looks as healthy as the right one; ``totals.at[group].add(y)`` drops what is beyond the end. The check evaluates the traced
program of the likelihood several times, with different numbers in place of entries read beyond the end, and with values
written there either dropped or written to the last place. A row whose value differs depends on them; if they are masked,
nothing differs. An index to a single entry under `jax.vmap` has ``mode="clip"`` in the program, so a model that intends to
clip must clip its index itself. Functions of JAX may drop what they write beyond the end of their own arrays (`jnp.repeat`,
`jnp.bincount`), and negative indices, with which `jax.ops.segment_sum` marks padding, may be dropped.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxpr_as_fun
from jax.extend.core.primitives import closed_call_p
from jaxtyping import Array, Bool

from bayesmesh.config.user_code import explaining
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import READ_ROWS
from bayesmesh.errors import ConfigError
from bayesmesh.models._latents import align_local
from bayesmesh.models.base import Latents, Model, Rows
from bayesmesh.sampling.checks.rows import QUICK, latents_at_point, place_of_likelihood
from bayesmesh.sampling.density.log_density import row_shapes
from bayesmesh.sampling.density.rows import ReadRows

BEYOND = "an index is beyond the end of its array; JAX reads the last entry instead, and drops what is written there"

_BYTES = 2**26
"""Largest size of the rows in memory at a time, in bytes."""

_FILL = jax.lax.GatherScatterMode.FILL_OR_DROP

_ROUNDING = 1e-6
"""Relative difference that counts as rounding; without entries beyond the end, all programs compute the same."""

_SCATTERS = {
    jax.lax.scatter_p, jax.lax.scatter_add_p, jax.lax.scatter_sub_p, jax.lax.scatter_mul_p, jax.lax.scatter_min_p,
    jax.lax.scatter_max_p,
}  # fmt: skip
"""Primitives of ``array.at[index]``, `jax.ops.segment_sum` and the like."""

_OF_AT = ("/array_methods.py", "/indexing.py")
"""Files of ``jax.numpy`` through which ``array.at[index]`` is called."""


_SIGNS = (0, -1, 1)
"""Signs of the numbers that replace an entry beyond the end, one per program: a small number, and one beyond all entries on either
side. Values written beyond the end are dropped in the first program, as in JAX, and go to the last place in the others."""


def _number_beyond(sign: int, values: Array) -> Array:
    """Return a replacement for an entry of an array, (), which may be a scale, a number of iterations or an index itself.

    It is so far from all entries that one row shows among many, but its exponential is finite if the entries are small.
    """
    if not jnp.issubdtype(values.dtype, jnp.inexact):
        return jnp.asarray(abs(sign), values.dtype)
    if not sign:
        return jnp.asarray(0.3, values.dtype)
    size = jnp.max(jnp.where(jnp.isfinite(values), jnp.abs(values), 0), initial=0.0)
    return (sign * (30.0 + size)).astype(values.dtype)


class RowPart(NamedTuple):
    """Rows that are checked.

    Attributes:
        name_row: returns the name of a row from its number in the order of `read_rows`, counted from 0.
        first, end: the rows ``first`` to ``end - 1``.
        read_rows: returns the rows of a range, as stored.
    """

    name_row: Callable[[int], str]
    first: int
    end: int
    read_rows: ReadRows


def check_indices(
    model_class: type[Model], options: Any, spec: DataSpec, training: RowPart, held_out: Callable[[], Sequence[RowPart]]
) -> None:
    """Refuse a likelihood that depends on entries beyond the end of an array; reads all rows if it indexes any.

    Args:
        model_class: class of the model.
        options: its options.
        spec: its data, in the experiment's dtype.
        training: rows whose entries of local latents follow from their numbers.
        held_out: returns the held-out rows; called only if the likelihood indexes an array.

    Raises:
        ConfigError: it does; the message names the method and the first such row.
    """
    of_row = max(1, sum(8 * math.prod(field.shape) for field in spec.fields.values()))
    count = max(1, min(training.end - training.first, READ_ROWS, _BYTES // of_row))
    # Latents with an entry for each row need only the entries of a block; groups of rows may lie anywhere.
    own = spec if spec.entry_counts else dataclasses.replace(spec, num_rows=count)
    model = model_class(options, own)
    shapes = row_shapes(spec, count)
    with explaining(method=model.log_likelihood):
        latents = jax.eval_shape(lambda: latents_at_point(model, own))
        entries = jax.ShapeDtypeStruct((count,), np.int64)
        if (find := find_rows_beyond(likelihood_of_rows(model), latents, shapes, entries)) is None:
            return
        at = jax.jit(lambda: latents_at_point(model, own), compiler_options=QUICK)()
        for part in (training, *held_out()):
            for start in range(part.first, part.end, count):
                # The last call is padded by repeating a row.
                numbers = np.minimum(np.arange(start, start + count), part.end - 1)
                read = part.read_rows(start, min(start + count, part.end))
                rows = {k: np.asarray(read[k][numbers - start], shape.dtype) for k, shape in shapes.items()}
                entry = spec.entries_of(numbers) if spec.entry_counts and part is training else np.arange(count)
                if (row := find(at, rows, np.asarray(entry, np.int64))) is not None:
                    raise _error(model, part.name_row(int(numbers[row])), {k: v[row] for k, v in rows.items()})


def find_rows_beyond(function: Callable[..., Any], *arguments: Any) -> Callable[..., int | None] | None:
    """Return a function that finds the first row whose results depend on an entry beyond the end of an array.

    Args:
        function: returns arrays with a leading axis of rows.
        arguments: arguments of the function, or their shapes and dtypes.

    Returns:
        The function, for arguments of these shapes; None if `function` indexes no array.
    """
    plain = jax.make_jaxpr(function)(*arguments)
    marked = [_mark(plain.jaxpr, sign) for sign in _SIGNS]
    if all(each is plain.jaxpr for each in marked):
        return None
    programs = [jaxpr_as_fun(ClosedJaxpr(each, plain.consts)) for each in marked]

    def differs(*arguments: Any) -> Bool[Array, " rows"]:
        flat = jax.tree.leaves(arguments)
        first, *others = (program(*flat) for program in programs)
        found = [_is_other(a, b) for other in others for a, b in zip(first, other, strict=True)]
        return functools.reduce(jnp.logical_or, [each.reshape(len(each), -1).any(1) for each in found])

    evaluate = jax.jit(differs, compiler_options=QUICK)

    def first_row(*arguments: Any) -> int | None:
        beyond = np.asarray(evaluate(*arguments))
        return int(beyond.argmax()) if beyond.any() else None

    return first_row


def _is_other(one: Array, other: Array) -> Bool[Array, "..."]:
    """Return where numbers differ by more than rounding."""
    same = (one == other) | (jnp.isnan(one) & jnp.isnan(other))
    return ~same & ~(jnp.abs(one - other) <= _ROUNDING * jnp.maximum(1, jnp.abs(one)))


def likelihood_of_rows(model: Model) -> Callable[[Latents, Rows, Array], Array]:
    """Return the log likelihood of rows as a function of a draw, rows, and the entries of local latents to which these belong."""
    return lambda latents, rows, entries: model.log_likelihood(align_local(model, latents, entries), rows)


def _mark(jaxpr: Jaxpr, sign: int) -> Jaxpr:
    """Return the program with entries beyond the end of an array replaced; the same object if it indexes no array."""
    equations = [_mark_equation(each, sign) for each in jaxpr.eqns]
    is_same = all(mine is each for mine, each in zip(equations, jaxpr.eqns, strict=True))
    return jaxpr if is_same else jaxpr.replace(eqns=equations)


def _mark_equation(equation: JaxprEqn, sign: int) -> JaxprEqn:
    if equation.primitive is jax.lax.gather_p:
        if equation.params["mode"] is _FILL:
            return equation
        return _replace(equation, functools.partial(_gather, equation.params, sign))
    if equation.primitive in _SCATTERS:
        if not sign or _is_of_a_function_of_jax(equation):
            return equation
        return _replace(equation, functools.partial(_scatter, equation))
    if equation.primitive is jax.lax.dynamic_slice_p:
        return _replace(equation, functools.partial(_slice, equation.params["slice_sizes"], sign))
    if equation.primitive is jax.lax.dynamic_update_slice_p:
        return equation if sign else _replace(equation, _update)
    changed = {name: new for name, old in equation.params.items() if (new := _mark_parameter(old, sign)) is not old}
    return equation.replace(params={**equation.params, **changed}) if changed else equation


def _replace(equation: JaxprEqn, function: Callable[..., Any]) -> JaxprEqn:
    """Return an equation with the same arguments whose results come from a function."""
    guarded = jax.make_jaxpr(function)(*(each.aval for each in equation.invars))
    return equation.replace(primitive=closed_call_p, params={"call_jaxpr": guarded})


def _gather(params: Mapping[str, Any], sign: int, values: Array, indices: Array) -> Array:
    """Return entries, with those beyond the end replaced."""
    filled = {**params, "mode": _FILL, "fill_value": False}
    is_there = jax.lax.gather_p.bind(jnp.ones(values.shape, bool), indices, **filled)
    return jnp.where(is_there, jax.lax.gather_p.bind(values, indices, **params), _number_beyond(sign, values))


def _scatter(equation: JaxprEqn, values: Array, indices: Array, updates: Array) -> Array:
    """Write entries beyond the end to the last place, except those with a negative index."""
    numbers = equation.params["dimension_numbers"]
    windows = iter(numbers.update_window_dims)
    outside = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    sizes = [1 if axis in outside else updates.shape[next(windows)] for axis in range(values.ndim)]
    last = [values.shape[axis] - sizes[axis] for axis in numbers.scatter_dims_to_operand_dims]
    within = jnp.minimum(indices, jnp.broadcast_to(jnp.asarray(last, indices.dtype), indices.shape))
    return equation.primitive.bind(values, within, updates, **{**equation.params, "mode": _FILL})


def _update(values: Array, part: Array, *starts: Array) -> Array:
    """Return an array with a part written into it, or without the part if it would reach beyond the end and JAX would move it."""
    put = jax.lax.dynamic_update_slice_p.bind(values, part, *starts)
    return jnp.where(_fits(values.shape, part.shape, starts), put, values)


def _fits(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Array]) -> Bool[Array, ""]:
    fits = [(start >= 0) & (start <= length - size) for start, length, size in zip(starts, shape, sizes, strict=True)]
    return jnp.stack(fits).all()


def _is_of_a_function_of_jax(equation: JaxprEqn) -> bool:
    """Return whether a function of ``jax.numpy`` writes entries to an array of its own, as opposed to a user's ``.at[]``."""
    traceback = equation.source_info.traceback
    files: list[str] = [frame.file_name.replace("\\", "/") for frame in traceback.frames] if traceback else []
    inner = itertools.takewhile(lambda file: "/jax/" in file, files)
    return any("/jax/_src/numpy/" in file and not file.endswith(_OF_AT) for file in inner)


def _slice(sizes: tuple[int, ...], sign: int, values: Array, *starts: Array) -> Array:
    """Return a slice, or replacements if it would reach beyond the end and JAX would move it."""
    taken = jax.lax.dynamic_slice_p.bind(values, *starts, slice_sizes=sizes)
    return jnp.where(_fits(values.shape, sizes, starts), taken, _number_beyond(sign, values))


def _mark_parameter(value: Any, sign: int) -> Any:
    """Return a parameter of an equation with the programs in it marked; the same object if there are none."""
    match value:
        case Jaxpr():
            return _mark(value, sign)
        case ClosedJaxpr():
            return value if (marked := _mark(value.jaxpr, sign)) is value.jaxpr else value.replace(jaxpr=marked)
        case tuple():
            parts = [_mark_parameter(each, sign) for each in value]
            if all(a is b for a, b in zip(parts, value, strict=True)):
                return value
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _error(model: Model, row: str, values: Mapping[str, np.ndarray]) -> ConfigError:
    """Return the error for a row, with its integers, one of which is likely the index."""
    single = {k: float(value) for k, value in values.items() if not value.shape}
    whole = [f"{k} {value:.0f}" for k, value in single.items() if value == np.floor(value)]
    has = f" ({', '.join(whole)})" if whole else ""
    named = "the data" if model.reads_whole(model.options) else f"{row}{has}"
    return ConfigError(
        f"{place_of_likelihood(model)}: {named}: {BEYOND}",
        "count from 0, such as effects[group - 1] of groups that are numbered from 1, and give the array as many entries as there"
        " are; where the last entry is meant, write effects[jnp.minimum(group, len(effects) - 1)], and where an entry is to be"
        " forgotten, put it in one more place of the array and leave that out",
    )
