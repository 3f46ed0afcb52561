"""Targets other than models: plain functions, any target at another temperature, and targets in groups of units.

Units are independent of each other given the rest, such as users given films, and films given users. A kernel may then move
all units of a group at once and accept or reject each by itself, so that the step size need not shrink with the number of
units. A target that declares no units is one unit. Where the units are normal given all else, they can be drawn exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import DensityParts, Position, Target
from bayesmesh.kernels.hamiltonian.metrics.base import apply_mask


class FunctionTarget(Target):
    """Functions of one chain's vector of coordinates, (S,), as a target of kernels.

    Args:
        log_likelihood: its log density, in nats.
        log_prior: a second term; nothing by default.
    """

    def __init__(
        self,
        log_likelihood: Callable[[Float[Array, " S"]], Float[Array, ""]],
        log_prior: Callable[[Float[Array, " S"]], Float[Array, ""]] | None = None,
    ) -> None:
        self._log_likelihood = log_likelihood
        self._log_prior = log_prior or (lambda q: jnp.zeros((), q.dtype))

    @property
    def mask(self) -> Position:
        """Nothing is padded."""
        return Position(None, None)

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return both terms and the gradient of each."""
        log_prior, prior_gradient = jax.vmap(jax.value_and_grad(self._log_prior))(position.shared)
        value, gradient = jax.vmap(jax.value_and_grad(self._log_likelihood))(position.shared)
        gradients = Position(prior_gradient, None), Position(gradient, None)
        return DensityParts(log_prior.astype(jnp.float64), value.astype(jnp.float64), *gradients)


class TemperedTarget(Target):
    """Prior times likelihood to the power of an inverse temperature.

    Args:
        target: at inverse temperature 1.
        inverse_temperature: (chain,) float64, above 0; a chain has its own.
    """

    def __init__(self, target: Target, inverse_temperature: Float[Array, " chain"]) -> None:
        self.target, self.inverse_temperature = target, inverse_temperature

    @property
    def mask(self) -> Position:
        """The mask of the target."""
        return self.target.mask

    def log_density_parts(self, position: Position) -> DensityParts:
        """Return log prior, tempered log likelihood and the gradient of each."""
        parts = self.target.log_density_parts(position)

        def temper(x: jax.Array) -> jax.Array:
            power = self.inverse_temperature.astype(x.dtype)
            return x * power.reshape(power.shape + (1,) * (x.ndim - 1))

        likelihood_gradient = jax.tree.map(temper, parts.likelihood_gradient)
        return parts._replace(log_likelihood=temper(parts.log_likelihood), likelihood_gradient=likelihood_gradient)


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
        return WholeConditional(self._target, position)

    def information(self, position: Position) -> Position:
        """Return zeros."""
        return jax.tree.map(jnp.zeros_like, position)

    def add(self, to: Position, group: int, values: Float[Array, "chain 1"]) -> Position:
        """Add one number per chain to all coordinates."""
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
        ones = jax.tree.map(jnp.ones_like, self._like)
        size = self.start.shape[2]
        basis = jnp.broadcast_to(jnp.eye(size, dtype=self.start.dtype), (len(self.start), size, size))
        return UnitScale(basis, _flatten(apply_mask(ones, self._target.mask)))

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


@runtime_checkable
class Normals(Protocol):
    """Groups of units, and how to draw them and all else; each transition leaves the target invariant."""

    @property
    def num_groups(self) -> int: ...

    def draw(self, key: Key[Array, " chain"], position: Position, group: int) -> Position:
        """Draw all units of a group anew, given all other coordinates."""
        ...

    def redraw(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make a transition along directions that leave the likelihood unchanged."""
        ...

    def redraw_rest(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make a transition of the coordinates outside all groups."""
        ...


def normals_of(target: Target) -> Normals:
    """Return the normal groups of a target.

    Raises:
        ConfigError: the target has none.
    """
    found: Normals | None = getattr(target, "normals", None)
    if found is None:
        raise ConfigError(
            "key 'kernel.name': gibbs draws units from exact normals, and the model declares no such groups (`normal_groups`)",
            "use it with rating_factorization and `likelihood: gaussian`, or with glm, a normal outcome, `centred: true` and several"
            " groups of independent effects; other models take nuts, or unit_hmc where they have `unit_groups`",
        )
    return found
