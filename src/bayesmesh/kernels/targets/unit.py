"""A target in units that are independent of each other given the rest, such as users given films, and films given users.

A kernel may then move all units of a group at once and accept or reject each by itself, so that the step size need not
shrink with the number of units. A target that declares no units is one unit.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bayesmesh.kernels.base import Position, Target


class UnitDensity(NamedTuple):
    """Densities of the units of a group, up to terms that do not depend on their coordinates.

    Attributes:
        log_prior: (chain, unit) float64, nats.
        log_likelihood: (chain, unit) float64, nats; its sum over the units of any group is that over all rows.
        gradient: (chain, unit, k), gradient of the sum of both.
    """

    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: jax.Array


class UnitScale(NamedTuple):
    """Factors of the units' approximate covariances A A^T: for unit i, A = basis diag(stretch_i).

    Attributes:
        basis: (chain, k, k), shared by all units of a group.
        stretch: (chain, unit, k); 0 for padding, which never moves.
    """

    basis: jax.Array
    stretch: jax.Array

    def move(self, momentum: Float[Array, "chain unit k"]) -> Float[Array, "chain unit k"]:
        """Return A p."""
        return jnp.einsum("cuk,cjk->cuj", momentum * self.stretch, self.basis)

    def whiten(self, gradient: Float[Array, "chain unit k"]) -> Float[Array, "chain unit k"]:
        """Return A^T g."""
        return jnp.einsum("cuj,cjk->cuk", gradient, self.basis) * self.stretch


@runtime_checkable
class Conditional(Protocol):
    """The units of one group, given all other coordinates.

    Attributes:
        start: (chain, unit, k), current coordinates of the units.
    """

    start: jax.Array

    def density(self, at: Float[Array, "chain unit k"]) -> UnitDensity:
        """Return the densities of all units at these coordinates; one pass over the data."""
        ...

    def gradient(self, at: Float[Array, "chain unit k"]) -> Float[Array, "chain unit k"]:
        """Return only their gradients; a shorter pass."""
        ...

    def scale(self, information: Position) -> UnitScale:
        """Return their scale from the result of `Units.information` and the other coordinates, not from their own."""
        ...

    def place(self, at: Float[Array, "chain unit k"]) -> Position:
        """Return the positions of the chains with these units."""
        ...


@runtime_checkable
class Units(Protocol):
    """Groups of units, which together contain all coordinates."""

    @property
    def num_groups(self) -> int: ...

    def given(self, position: Position, group: int) -> Conditional:
        """Return the units of a group, given all other coordinates."""
        ...

    def information(self, position: Position) -> Position:
        """Return the information in the data about each unit, repeated for its coordinates, (chain, ...); one pass over the data."""
        ...

    def add(self, to: Position, group: int, values: Float[Array, "chain unit"]) -> Position:
        """Add one number per unit of a group to all coordinates of the unit."""
        ...

    def redraw(self, key: Key[Array, " chain"], position: Position) -> tuple[Position, Float[Array, " chain"]]:
        """Make a transition along directions that the data do not identify; target and log likelihood are invariant.

        Returns:
            The positions, and the change in log prior, (chain,) float64.
        """
        ...


def units_of(target: Target) -> Units:
    """Return the units of a target; the whole position as one unit if it declares none."""
    found: Units | None = getattr(target, "units", None)
    return WholeUnits(target) if found is None else found


class WholeUnits:
    """All coordinates of a target as one unit."""

    num_groups = 1

    def __init__(self, target: Target) -> None:
        self._target = target

    def given(self, position: Position, group: int) -> WholeConditional:
        """Return the whole position; there is one group."""
        del group
        return WholeConditional(self._target, position)

    def information(self, position: Position) -> Position:
        """Return zeros."""
        return jax.tree.map(jnp.zeros_like, position)

    def add(self, to: Position, group: int, values: Float[Array, "chain 1"]) -> Position:
        """Add one number per chain to all coordinates."""
        del group
        return jax.tree.map(lambda x: x + values.reshape(-1, *[1] * (x.ndim - 1)).astype(x.dtype), to)

    def redraw(self, key: Key[Array, " chain"], position: Position) -> tuple[Position, Float[Array, " chain"]]:
        """Return the positions as they are."""
        return position, jnp.zeros(key.shape, jnp.float64)


class WholeConditional:
    """The only unit of `WholeUnits`."""

    def __init__(self, target: Target, position: Position) -> None:
        self._target, self._like = target, position
        self.start = _flatten(position)

    def density(self, at: Float[Array, "chain unit k"]) -> UnitDensity:
        """Return the density of the target."""
        log_prior, log_likelihood, gradient = self._target.log_density(self.place(at))
        return UnitDensity(log_prior[:, None], log_likelihood[:, None], _flatten(gradient))

    def gradient(self, at: Float[Array, "chain unit k"]) -> Float[Array, "chain unit k"]:
        """Return its gradient."""
        return self.density(at).gradient

    def scale(self, information: Position) -> UnitScale:
        """Return the identity."""
        del information
        ones = jax.tree.map(jnp.ones_like, self._like)
        masked = (x if m is None or x is None else x * m[None] for x, m in zip(ones, self._target.mask, strict=True))
        size = self.start.shape[2]
        basis = jnp.broadcast_to(jnp.eye(size, dtype=self.start.dtype), (len(self.start), size, size))
        return UnitScale(basis, _flatten(Position(*masked)))

    def place(self, at: Float[Array, "chain unit k"]) -> Position:
        """Return the positions."""
        parts, begin = [], 0
        for x in self._like:
            size = 0 if x is None else x[0].size
            parts.append(None if x is None else at[:, 0, begin : begin + size].reshape(x.shape))
            begin += size
        return Position(*parts)


def _flatten(position: Position) -> Float[Array, "chain 1 k"]:
    return jnp.concatenate([x.reshape(len(x), 1, -1) for x in jax.tree.leaves(position)], axis=2)
