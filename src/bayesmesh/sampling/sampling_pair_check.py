"""Look for sums over all pairs of rows, which arise by mistake when shapes (rows, 1) and (rows,) are broadcast together.

If all data are one row, the value of a single observation is unknown, so no other check sees them.
"""

from __future__ import annotations

import itertools

from jax.extend.core import ClosedJaxpr, JaxprEqn

from bayesmesh.sampling.program_costs import equations_of, inner_programs, trace_tile
from bayesmesh.sampling.sampling_density import Target
from bayesmesh.sampling.sampling_row_check import place_of_likelihood
from bayesmesh.sampling.traced_fields import Value, operations_of

FEWEST_ROWS = 8
"""Fewest rows for the check: with fewer, an axis of another meaning often has the same length."""

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
        self._group: dict[Value, Value] = {}

    def are_added_up(self, jaxpr: ClosedJaxpr) -> bool:
        """Return whether a group of such arrays is added up, enters no matrix operation, and may come from a column."""
        values: dict[int, Value] = {}
        operations = list(operations_of(jaxpr.jaxpr, values))
        inputs = [values[id(each)] for each in jaxpr.jaxpr.invars if id(each) in values]
        summed, of_matrices, is_column = list[Value](), list[Value](), any(map(self._is_column, inputs))
        for equation, operands, results in operations:
            names = _names(equation)
            is_column |= "dot_general" in names and any(map(self._is_column, results))
            pairs = [each for each in (*operands, *results) if self._is_of_pairs(each)]
            for one, other in itertools.pairwise(pairs):
                self._group[self._find(one)] = self._find(other)
            if not _OF_MATRICES.isdisjoint(names):
                of_matrices += pairs[:1]
            elif "reduce_sum" in names:
                summed += [each for each in operands if self._is_of_pairs(each)]
        exempt = {self._find(each) for each in (*of_matrices, *filter(self._is_of_pairs, inputs))}
        return is_column and any(self._find(each) not in exempt for each in summed)

    def _find(self, value: Value) -> Value:
        while (other := self._group.get(value, value)) is not value:
            value = other
        return value

    def _is_of_pairs(self, value: Value) -> bool:
        return value.shape.count(self._length) >= self._fewest

    def _is_column(self, value: Value) -> bool:
        return value.shape[-2:] == (self._length, 1)


def _names(equation: JaxprEqn | None) -> set[str]:
    """Return the names of an operation and of those inside it."""
    if equation is None:
        return set()
    inner = (each for program in inner_programs(equation) for each in equations_of(program))
    return {each.primitive.name for each in (equation, *inner)}
