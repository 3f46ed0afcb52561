"""Which fields of the rows a function reads, and which field it returns, from its traced program: no values are tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax.extend.core import Jaxpr, JaxprEqn

_CALLS = frozenset({"closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2", "checkpoint"})
"""Calls whose inner operations have the same operands and results, one for one."""

_CONVERSIONS = frozenset({"convert_element_type", "copy", "copy_p", "stop_gradient"})
"""Operations that keep the values of their operand."""

RowShapes = Mapping[str, jax.ShapeDtypeStruct] | Mapping[str, jax.Array]
"""Field -> some rows, or their shape and dtype."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A value in a program; two calls of one function have values of their own."""

    shape: tuple[int, ...]


class Operation(NamedTuple):
    """An operation outside of calls; without an equation, it hands a result of a call to the caller."""

    equation: JaxprEqn | None
    operands: list[Value]
    results: list[Value]


def fields_used(function: Callable[..., Any], rows: RowShapes, *others: Any) -> frozenset[str]:
    """Return the fields on which the results of a function depend.

    Args:
        function: of rows and `others`.
        rows: see `RowShapes`.
        others: further arguments, or their shapes and dtypes.

    >>> rows = {name: jax.ShapeDtypeStruct((3,), "float32") for name in ("x", "y", "z")}
    >>> sorted(fields_used(lambda rows: jax.jit(lambda x, y: 2 * x)(rows["x"], rows["y"]) + rows["z"].sum(), rows))
    ['x', 'z']
    """
    inputs, operations, results = _trace(function, rows, *others)
    used = set(results)
    for operation in reversed(operations):
        if not used.isdisjoint(operation.results):
            used.update(operation.operands)
    return frozenset(name for name, value in inputs.items() if value in used)


def field_returned(function: Callable[[Any], Any], rows: RowShapes) -> str | None:
    """Return the field whose values a function returns, perhaps in another precision; None if it computes others.

    Args:
        function: of rows to one array.
        rows: see `RowShapes`.

    >>> rows = {name: jax.ShapeDtypeStruct((3,), "float32") for name in ("x", "y")}
    >>> field_returned(lambda rows: rows["y"].astype("float16"), rows), field_returned(lambda rows: -rows["y"], rows)
    ('y', None)
    """
    inputs, operations, (result,) = _trace(function, rows)
    for equation, operands, results in reversed(operations):
        if result in results:
            if equation is not None and equation.primitive.name not in _CONVERSIONS:
                return None
            result = operands[0]
    return next((name for name, value in inputs.items() if value is result), None)


def _trace(
    function: Callable[..., Any], rows: RowShapes, *others: Any
) -> tuple[dict[str, Value], list[Operation], list[Value]]:
    names = sorted(rows)
    jaxpr = jax.make_jaxpr(function)({name: rows[name] for name in names}, *others).jaxpr
    values: dict[int, Value] = {}
    operations = list(operations_of(jaxpr, values))
    inputs = {name: _value(variable, values) for name, variable in zip(names, jaxpr.invars, strict=False)}
    return inputs, operations, [_value(variable, values) for variable in jaxpr.outvars]


def operations_of(jaxpr: Jaxpr, values: dict[int, Value]) -> Iterator[Operation]:
    """Yield the operations of a program in order, those inside calls instead of the calls.

    Args:
        jaxpr: the program.
        values: id of a variable -> its value; variables that are not there are added.
    """
    for equation in jaxpr.eqns:
        operands = [_value(each, values) for each in equation.invars]
        results = [_value(each, values) for each in equation.outvars]
        inner = _called(equation)
        if inner is None or len(inner.invars) != len(operands):
            yield Operation(equation, operands, results)
            continue
        of_call = {id(variable): value for variable, value in zip(inner.invars, operands, strict=True)}
        yield from operations_of(inner, of_call)
        for variable, result in zip(inner.outvars, results, strict=True):
            yield Operation(None, [_value(variable, of_call)], [result])


def _value(variable: object, values: dict[int, Value]) -> Value:
    shape = tuple(getattr(getattr(variable, "aval", None), "shape", ()))
    return values.setdefault(id(variable), Value(shape))


def _called(equation: JaxprEqn) -> Jaxpr | None:
    """Return the jaxpr of a call; None for any other operation."""
    if equation.primitive.name not in _CALLS:
        return None
    found = equation.params.get("jaxpr") or equation.params.get("call_jaxpr") or equation.params.get("fun_jaxpr")
    return getattr(found, "jaxpr", found)
