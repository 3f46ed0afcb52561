"""Which fields of the rows a function reads, and which field it returns, from its traced program: no values are tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.interpreters import partial_eval

_CONVERSIONS = frozenset({"convert_element_type", "copy", "copy_p", "stop_gradient"})
"""Operations that keep the values of their operand."""

RowShapes = Mapping[str, jax.ShapeDtypeStruct] | Mapping[str, jax.Array]
"""Field -> some rows, or their shape and dtype."""


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
    traced = jax.make_jaxpr(function)(dict(rows), *others)
    _, is_used = partial_eval.dce_jaxpr(traced.jaxpr, [True] * len(traced.out_avals))
    return frozenset(name for name, used in zip(sorted(rows), is_used, strict=False) if used)


def field_returned(function: Callable[[Any], Any], rows: RowShapes) -> str | None:
    """Return the field whose values a function returns, perhaps in another precision; None if it computes others.

    Args:
        function: of rows to one array.
        rows: see `RowShapes`.

    >>> rows = {name: jax.ShapeDtypeStruct((3,), "float32") for name in ("x", "y")}
    >>> field_returned(lambda rows: rows["y"].astype("float16"), rows), field_returned(lambda rows: -rows["y"], rows)
    ('y', None)
    """
    jaxpr = jax.make_jaxpr(function)(dict(rows)).jaxpr
    (found,) = jaxpr.outvars
    for equation in reversed(jaxpr.eqns):
        if any(found is result for result in equation.outvars):
            if equation.primitive.name not in _CONVERSIONS:
                return None
            found = equation.invars[0]
    return next((name for name, given in zip(sorted(rows), jaxpr.invars, strict=True) if given is found), None)
