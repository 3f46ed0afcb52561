"""Look for sums over all pairs of rows, which a shape of (rows, 1) beside one of (rows,) makes by mistake.

The value of a row by itself is not known where all rows are one, so that no other check sees them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from jax.extend.core import ClosedJaxpr

from bayesmesh.sampling.program_costs import equations_of, trace_tile
from bayesmesh.sampling.sampling_density import Target
from bayesmesh.sampling.sampling_row_check import place_of_likelihood

_log = logging.getLogger("bayesmesh")

FEWEST_ROWS = 8
"""With fewer, an axis of another meaning is often as long."""

_OF_MATRICES = frozenset({
    "cholesky", "conv_general_dilated", "cumlogsumexp", "cummax", "cumprod", "cumsum", "custom_linear_solve", "dot_general", "eigh",
    "eig", "fft", "gather", "householder_product", "lu", "qr", "scan", "schur", "sort", "svd", "triangular_solve", "tridiagonal", "while",
})  # fmt: skip
"""Operations that ask for a matrix over the rows, such as a covariance."""


def warn_of_pairs(target: Target, num_chains: int) -> None:
    """Log a warning where a log density makes a number for each pair of rows and only adds them up.

    Args:
        target: log density of a model that takes all data as one row.
        num_chains: for which its cost was estimated.
    """
    lengths = {field.shape[0] for field in target.spec.fields.values() if field.shape}
    traced = trace_tile(target, num_chains)
    for length in sorted(lengths):
        # Chains are an axis too.
        if length >= FEWEST_ROWS and length != num_chains and _adds_up_pairs(traced.jaxpr, length):
            _log.warning(
                "warning: %s makes an array of %d by %d from %d rows and adds it up; if it has no sum over pairs of rows, a shape of (%d, 1)"
                " meets one of (%d,): give both the same shape",
                place_of_likelihood(target.model), length, length, length, length, length,
            )  # fmt: skip


def _adds_up_pairs(jaxpr: ClosedJaxpr, length: int) -> bool:
    """Return whether arrays over pairs of rows are made of arrays over rows, and no operation on matrices takes one."""
    if any(_is_of_pairs(variable, length) for variable in jaxpr.jaxpr.invars):
        return False
    equations = [*equations_of(jaxpr)]
    if any(_is_of_pairs(each, length) for e in equations if e.primitive.name in _OF_MATRICES for each in e.invars):
        return False
    sums = (e for e in equations if e.primitive.name == "reduce_sum")
    return any(_is_of_pairs(each, length) for e in sums for each in e.invars)


def _is_of_pairs(variable: object, length: int) -> bool:
    return [*_lengths(variable)].count(length) > 1


def _lengths(variable: object) -> Iterator[int]:
    yield from getattr(getattr(variable, "aval", None), "shape", ())
