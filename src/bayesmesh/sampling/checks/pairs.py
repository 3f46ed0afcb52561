"""Look for sums over all pairs of rows, which arise by mistake when shapes (rows, 1) and (rows,) are broadcast together.

If all data are one row, the value of a single observation is unknown, so no other check sees them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from bayesmesh.sampling.checks.rows import place_of_likelihood
from bayesmesh.sampling.density.costs import equations_of, trace_tile
from bayesmesh.sampling.density.log_density import Target

FEWEST_ROWS = 8
"""Fewest rows for the check: with fewer, an axis of another meaning often has the same length."""

_CALLS = frozenset({"closed_call", "custom_jvp_call", "custom_vjp_call", "jit", "pjit", "remat2", "checkpoint"})
"""Calls whose inner operations have the same operands and results, one for one."""

_OF_MATRICES = frozenset({
    "cholesky", "conv_general_dilated", "cumlogsumexp", "cummax", "cumprod", "cumsum", "custom_linear_solve", "dot_general", "eigh",
    "eig", "fft", "gather", "householder_product", "lu", "qr", "scan", "schur", "sort", "svd", "triangular_solve", "tridiagonal", "while",
})  # fmt: skip
"""Operations that need a matrix over the rows, such as a covariance."""


def sums_over_pairs(target: Target, num_chains: int) -> list[str]:
    """Return warnings if a log density makes a number for each pair of rows from a shape (rows, 1), and only adds these up.

    Args:
        target: log density of a model that takes all data as one row.
        num_chains: number of chains for which its cost was estimated.
    """
    lengths = {field.shape[0] for field in target.spec.fields.values() if field.shape}
    traced = trace_tile(target, num_chains)
    place = place_of_likelihood(target.model)
    return [
        f"{place} sums an array of shape ({n}, {n}). If no sum over pairs of rows is intended, an array of shape ({n}, 1) was broadcast"
        f" against one of shape ({n},): give both the same shape"
        for n in sorted(lengths)
        if n >= FEWEST_ROWS and _Pairs(n, num_chains).are_added_up(traced.jaxpr)
    ]


class _Pairs:
    """Arrays over pairs of rows in a computation for all chains.

    Arrays that operations compute from each other form a group. Pairs that are added up by mistake form a group of their own,
    separate from a matrix that is factorised or multiplied.

    Args:
        length: number of rows.
        num_chains: length of the axis of chains.
    """

    def __init__(self, length: int, num_chains: int) -> None:
        self._length = length
        # An axis of chains may have the same length.
        self._fewest = 2 + (length == num_chains)
        self._group: dict[object, object] = {}

    def are_added_up(self, jaxpr: ClosedJaxpr) -> bool:
        """Return whether a group of such arrays is added up, enters no matrix operation, and may come from a column."""
        summed, of_matrices, is_column = list[object](), list[object](), any(map(self._is_column, jaxpr.jaxpr.invars))
        given = [variable for variable in jaxpr.jaxpr.invars if self._is_of_pairs(variable)]
        for name, operands, results in _flatten(jaxpr.jaxpr, {}):
            is_column |= name == "dot_general" and any(map(self._is_column, results))
            pairs = [each for each in (*operands, *results) if self._is_of_pairs(each)]
            for one, other in itertools.pairwise(pairs):
                self._group[self._find(one)] = self._find(other)
            if name in _OF_MATRICES:
                of_matrices += pairs[:1]
            elif name == "reduce_sum":
                summed += [each for each in operands if self._is_of_pairs(each)]
        exempt = {self._find(each) for each in (*of_matrices, *given)}
        return is_column and any(self._find(each) not in exempt for each in summed)

    def _find(self, variable: object) -> object:
        while (other := self._group.get(variable, variable)) is not variable:
            variable = other
        return variable

    def _is_of_pairs(self, variable: object) -> bool:
        return _shape(variable).count(self._length) >= self._fewest

    def _is_column(self, variable: object) -> bool:
        return _shape(variable)[-2:] == (self._length, 1)


def _flatten(jaxpr: Jaxpr, outer: Mapping[int, object]) -> Iterator[tuple[str, list[object], list[object]]]:
    """Yield name, operands and results of each operation; operations inside calls use the caller's variables."""
    for equation in jaxpr.eqns:
        operands = [_of_caller(each, outer) for each in equation.invars]
        inner = _called(equation)
        if inner is None or len(inner.invars) != len(operands):
            nested = {each.primitive.name for each in equations_of(inner)} if inner is not None else set[str]()
            name = next(iter(sorted(nested & _OF_MATRICES)), equation.primitive.name)
            yield name, operands, list(equation.outvars)
            continue
        names = {id(variable): value for variable, value in zip(inner.invars, operands, strict=True)}
        yield from _flatten(inner, names)
        # Join the caller's variables for the results with those inside the call.
        results = [_of_caller(each, names) for each in inner.outvars]
        yield "call", results, list(equation.outvars)


def _of_caller(variable: object, outer: Mapping[int, object]) -> object:
    return outer.get(id(variable), variable)


def _called(equation: JaxprEqn) -> Jaxpr | None:
    """Return the jaxpr of a call; None for any other operation."""
    if equation.primitive.name not in _CALLS:
        return None
    found = equation.params.get("jaxpr") or equation.params.get("call_jaxpr") or equation.params.get("fun_jaxpr")
    return getattr(found, "jaxpr", found)


def _shape(variable: object) -> tuple[int, ...]:
    return tuple(getattr(getattr(variable, "aval", None), "shape", ()))
