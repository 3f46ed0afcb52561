"""Summaries of arrays with constant entries, as Cholesky factors of correlations are, or effects beside a reference of 0.

No chain can be judged by an entry that never changes, and no reader wants one of a factor: of a correlation the summaries
are the correlations themselves, each once, and of any other array the entries that vary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from bayesmesh.models.base import Axis, Latents

CORRELATION, ENTRIES = "correlation", "entries"
_SAME = 1e-5

Shapes = Mapping[str, jax.ShapeDtypeStruct]


class Varying(NamedTuple):
    """What is summarised of an array with constant entries.

    Attributes:
        kind: `CORRELATION` of a correlation matrix or its Cholesky factor, else `ENTRIES`.
        is_factor: whether it is such a factor.
        places: of the entries, along the last axes of the array.
    """

    kind: str
    is_factor: bool
    places: tuple[np.ndarray, ...]

    @property
    def axis(self) -> Axis:
        """The axis of the entries: of a correlation the two variables, else their places."""
        named = [
            sorted(map(int, place)) if self.kind == CORRELATION else place for place in zip(*self.places, strict=True)
        ]
        word = " and " if self.kind == CORRELATION else " "
        return Axis(
            "pair" if self.kind == CORRELATION else "entry", tuple(word.join(map(str, place)) for place in named)
        )


def is_square(shape: jax.ShapeDtypeStruct) -> bool:
    """Whether an array holds square matrices of two rows or more, the latents that may have constant entries."""
    return len(shape.shape) >= 2 and shape.shape[-1] == shape.shape[-2] > 1


def find_varying(names: Collection[str], draw: Callable[[PRNGKeyArray], Latents]) -> dict[str, Varying]:
    """Return name -> what is summarised of it, for arrays with entries that are the same in all draws of the prior.

    Args:
        names: of the arrays to look at.
        draw: of the prior; called if there is a name.
    """
    if not names:
        return {}
    with jax.ensure_compile_time_eval():
        draws = [draw(jax.random.key(number)) for number in range(2)]
        pairs = {name: tuple(np.asarray(each[name], np.float64) for each in draws) for name in names}
    found = {name: _describe(*pair) for name, pair in pairs.items()}
    return {name: varying for name, varying in found.items() if varying is not None}


def _describe(one: np.ndarray, other: np.ndarray) -> Varying | None:
    """Return what is summarised of an array, given two draws; None where every entry varies."""
    varies = one != other
    if varies.all():
        return None
    if one.ndim >= 2 and one.shape[-1] == one.shape[-2]:
        covariance, transposed = one @ np.swapaxes(one, -1, -2), np.swapaxes(one, -1, -2)
        is_factor = _has_unit_diagonal(covariance) and not np.triu(one, 1).any()
        if is_factor or (_has_unit_diagonal(one) and np.allclose(one, transposed, atol=_SAME)):
            return Varying(CORRELATION, is_factor, np.tril_indices(one.shape[-1], -1))
    return Varying(ENTRIES, False, np.nonzero(varies))


def _has_unit_diagonal(matrix: np.ndarray) -> bool:
    return bool(np.allclose(np.diagonal(matrix, axis1=-2, axis2=-1), 1, atol=_SAME))


def summarise(values: Latents, varying: Mapping[str, Varying]) -> dict[str, jax.Array]:
    """Return arrays as summaries, those of `find_varying` as `NAME_correlation` or `NAME_entries`, with one axis of entries.

    An array of which no entry varies is left out.
    """
    found = {name: value for name, value in values.items() if name not in varying}
    for name, about in varying.items():
        value = values[name]
        if about.is_factor:
            value = value @ jnp.swapaxes(value, -1, -2)
        if len(about.places[0]):
            found[f"{name}_{about.kind}"] = value[(..., *about.places)]
    return found


def varying_axes(shapes: Shapes, varying: Mapping[str, Varying]) -> dict[str, tuple[Axis | None, ...]]:
    """Return the axes of these summaries, of which the last one names the entries."""
    return {
        f"{name}_{about.kind}": (*[None] * (len(shapes[name].shape) - len(about.places)), about.axis)
        for name, about in varying.items()
        if len(about.places[0])
    }
