"""The log density of a model by units that are independent given the rest, over a mesh, for a batch of chains.

As in `density.log_density`, the model is written for one draw and a tile of rows. Tiles are summed one by one, and the compiler
sums over devices. Units of ``local`` lie with their rows; those of a block are shared, and every device adds the terms of its rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.targets import UnitDensity, UnitScale
from bayesmesh.models.base import Bijector, Model
from bayesmesh.sampling.density.position import PositionLayout
from bayesmesh.sampling.density.rows import RowLayout

LOCAL = "local"
"""Name of the group whose units are the entries of local latents."""

Arrays = Mapping[str, Array]


class ModelTarget(Protocol):
    """The part of `sampling.sampling_density.Target` that these units use."""

    model: Model
    layout: RowLayout
    position: PositionLayout
    bijector: Bijector
    dtype: Any

    def prior_and_latents(self, position: Position) -> tuple[Float[Array, ""], dict[str, jax.Array]]: ...
    def align(self, local: Arrays, data: Arrays) -> tuple[Arrays, Callable[[Arrays], tuple[Arrays]]]: ...


class BoundGroups:
    """Groups of units of a model, on its data: maps between positions, units and latents, and sums over tiles and devices.

    Args:
        target: the model's.
        data: as `Target.data_shapes` says.
        declared: property of the model that names the groups: ``local`` or blocks.
        moves_rest: whether the model moves the latents outside all groups.

    Raises:
        ConfigError: the model has no such block, or has latents that nothing moves, or grouped latents that are not real numbers.
    """

    def __init__(self, target: ModelTarget, data: Arrays, declared: str, *, moves_rest: bool = False) -> None:
        self.target, self.data = target, dict(data)
        self.groups: tuple[str, ...] = getattr(target.model, declared)
        self.names = {group: _names_of(target, group, declared) for group in self.groups}
        _check_groups(target, self.names, declared, moves_rest=moves_rest)

    @property
    def num_groups(self) -> int:
        """Number of groups."""
        return len(self.groups)

    def latents(self, position: Position) -> dict[str, jax.Array]:
        """Return the latents of every chain, (chain, ...); local ones have their entries first, with padding."""
        return jax.vmap(lambda q: self.target.prior_and_latents(q)[1])(position)

    def size(self, group: str) -> int:
        """Return the number of coordinates of a unit."""
        layout = self.target.position
        return layout.local_size if group == LOCAL else int(layout.blocks()[group].indices.shape[1])

    def take(self, position: Position, group: str) -> Float[Array, "chain unit k"]:
        """Return the coordinates of the units of a group."""
        if group == LOCAL:
            assert position.local is not None  # because the model has local latents
            return position.local
        assert position.shared is not None  # because the model has shared latents
        return position.shared[:, self.target.position.blocks()[group].indices]

    def place(self, position: Position, group: str, units: Float[Array, "chain unit k"]) -> Position:
        """Return positions with new coordinates for the units of a group."""
        if group == LOCAL:
            return position._replace(local=units)
        assert position.shared is not None  # as in `take`
        return position._replace(shared=position.shared.at[:, self.target.position.blocks()[group].indices].set(units))

    def to_latents(self, group: str, units: Float[Array, "unit k"]) -> dict[str, jax.Array]:
        """Return the group's latents of one chain, with the axis of units first."""
        made, begin = {}, 0
        for name, shape in self._unit_shapes(group).items():
            size = int(np.prod(shape))
            made[name] = units[:, begin : begin + size].reshape(-1, *shape)
            begin += size
        return made

    def to_units(self, group: str, latents: Arrays) -> Float[Array, "unit k"]:
        """Return the units' coordinates from one chain's latents, which have the axis of units first."""
        return jnp.concatenate([latents[k].reshape(len(latents[k]), -1) for k in self.names[group]], axis=1)

    def _unit_shapes(self, group: str) -> dict[str, tuple[int, ...]]:
        axes = self.axes(group)
        shapes = {k: self.target.position.shapes[k] for k in self.names[group]}
        return {k: (*s[: axes[k]], *s[axes[k] + 1 :]) for k, s in shapes.items()}

    def axes(self, group: str) -> dict[str, int]:
        """Return latent -> its axis of units in the prior's shape."""
        model = self.target.model
        return dict(model.local_latents if group == LOCAL else model.blocks[group])

    def over_tiles(
        self, function: Callable[[Arrays, Arrays, Arrays, Any], Any], latents: Arrays, data: Arrays, *, is_summed: bool
    ) -> Any:
        """Sum the results of a function over tiles, or join them along the entries; data is (device, tile, row, ...).

        The function gets the latents, local ones aligned with rows; the rows of the tile; all its data; and the map of gradients
        of local latents back to entries.
        """
        layout, local_names = self.target.layout, [k for k in latents if k in self.target.model.local_latents]
        lies = (*data["is_row"].shape[:2], layout.tile_entries)
        local = {k: latents[k].reshape(*lies, *latents[k].shape[1:]) for k in local_names}
        shared = {k: v for k, v in latents.items() if k not in local_names}

        def tile(shared: Arrays, local: Arrays, data: Arrays) -> Any:
            aligned, to_entries = self.target.align(local, data)
            rows = {k: v for k, v in data.items() if k not in ("is_row", "entry_of_row")}
            return function({**shared, **aligned}, rows, data, to_entries)

        def device(local: Arrays, data: Arrays) -> Any:
            if not is_summed:
                return jax.lax.map(lambda x: tile(shared, *x), (local, data))
            shapes = jax.eval_shape(tile, shared, *jax.tree.map(lambda x: x[0], (local, data)))
            zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)

            def add(carry: Any, x: tuple[Arrays, Arrays]) -> tuple[Any, None]:
                return jax.tree.map(jnp.add, carry, tile(shared, *x)), None

            return jax.lax.scan(add, zero, (local, data))[0]

        found = jax.vmap(device)(local, data)
        if is_summed:
            return jax.tree.map(lambda x: x.sum(axis=0), found)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), found)


class BoundUnits(BoundGroups):
    """The groups of units of a model, on its data: what kernels see as `kernels.targets.Units`.

    Args:
        target: the model's.
        data: as `Target.data_shapes` says.

    Raises:
        ConfigError: the groups lack a latent, or have latents that are not real numbers.
    """

    def __init__(self, target: ModelTarget, data: Arrays) -> None:
        super().__init__(target, data, "unit_groups")

    def given(self, position: Position, group: int) -> ModelConditional:
        """Return the units of a group, given all other coordinates of positions (chain, ...)."""
        return ModelConditional(self, position, self.groups[group])

    def information(self, position: Position) -> Position:
        """Return the model's `unit_information`, repeated for the coordinates of each unit, (chain, ...)."""
        found = jax.vmap(functools.partial(self._information, data=self.data))(self.latents(position))
        made = position
        for group in self.groups:
            each = found[group][:, :, None].astype(self.target.dtype)
            made = self.place(made, group, jnp.broadcast_to(each, (*each.shape[:2], self.size(group))))
        return made

    def add(self, to: Position, group: int, values: Float[Array, "chain unit"]) -> Position:
        """Add one number per unit of a group to all coordinates of the unit."""
        name = self.groups[group]
        return self.place(to, name, self.take(to, name) + values[:, :, None].astype(self.target.dtype))

    def redraw(self, key: Key[Array, " chain"], position: Position) -> tuple[Position, Float[Array, " chain"]]:
        """Make the model's `redraw`, and return the positions and the change in log prior."""

        def one(key: jax.Array, position: Position) -> tuple[Position, jax.Array]:
            z = self.target.position.unpack(position, jnp.dtype("float64"))
            redrawn = self.target.position.pack(self.target.model.redraw(key, z))
            before, after = (self.target.prior_and_latents(q)[0] for q in (position, redrawn))
            return redrawn, after - before

        return jax.vmap(one)(key, position)

    # -- sums over tiles and devices, for the latents of one chain ---------------------------------------------------

    def likelihood(
        self, latents: Arrays, data: Arrays, group: str, *, with_value: bool
    ) -> tuple[Float[Array, " unit"] | None, Float[Array, "unit k"]]:
        """Return the log likelihood of each unit of a group without its linear part, float64, and its gradient."""
        function = functools.partial(self.target.model.unit_likelihood, group, with_value=with_value)
        value, gradient = self._by_unit(function, latents, data, group)
        return value, self.to_units(group, gradient)

    def linear(
        self, latents: Arrays, data: Arrays, group: str
    ) -> tuple[Float[Array, " unit"], Float[Array, "unit k"]] | None:
        """Return the linear part of that log likelihood: constants and coefficients; None if the model declares none."""
        function = functools.partial(self.target.model.unit_linear, group)
        found = self._by_unit(function, latents, data, group)
        return None if found is None else (found[0], self.to_units(group, found[1]))

    def _by_unit(self, function: Callable[..., Any], latents: Arrays, data: Arrays, group: str) -> Any:
        """Sum by unit the results of a function of (latents, rows, is_row): a value, or None, and values like the group's latents."""

        def tile(latents: Arrays, rows: Arrays, data: Arrays, to_entries: Any) -> tuple[Any, Arrays] | None:
            if (found := function(latents, rows, data["is_row"])) is None:
                return None
            value, of_latents = found
            value = None if value is None else value.astype(jnp.float64)
            if group != LOCAL:
                first = {k: jnp.moveaxis(of_latents[k], axis, 0) for k, axis in self.axes(group).items()}
                return jax.tree.map(lambda x: jnp.where(data["is_row"][0], x, 0), (value, first))
            local = [k for k in latents if k in self.target.model.local_latents]
            of_all = {k: jnp.zeros_like(latents[k]) for k in local} | dict(of_latents)
            if self.target.layout.is_padded:
                # As in `Target.tile`: a tile without rows contains only padding.
                of_all = {k: jnp.where(data["is_row"][0], g, 0) for k, g in of_all.items()}
            (by_entry,) = to_entries(of_all)
            if value is not None and "entry_of_row" in data:
                value = jax.ops.segment_sum(value, data["entry_of_row"], self.target.layout.tile_entries)
            return value, by_entry

        return self.over_tiles(tile, latents, data, is_summed=group != LOCAL)

    def _information(self, latents: Arrays, data: Arrays) -> dict[str, jax.Array]:
        def tile(of_rows: bool, latents: Arrays, rows: Arrays, data: Arrays, _: Any) -> dict[str, jax.Array]:
            found = dict(self.target.model.unit_information(latents, rows, data["is_row"]))
            if of_rows and "entry_of_row" in data:
                found[LOCAL] = jax.ops.segment_sum(found[LOCAL], data["entry_of_row"], self.target.layout.tile_entries)
            return {k: v for k, v in found.items() if (k == LOCAL) == of_rows}

        made: dict[str, jax.Array] = {}
        for of_rows in dict.fromkeys(group == LOCAL for group in self.groups):
            made |= self.over_tiles(functools.partial(tile, of_rows), latents, data, is_summed=not of_rows)
        return made


class ModelConditional:
    """The units of one group of a model, given all other coordinates.

    Args:
        units: the model's.
        position: (chain, ...).
        group: name of the group.
    """

    def __init__(self, units: BoundUnits, position: Position, group: str) -> None:
        self.units, self.position, self.group = units, position, group
        self.start = units.take(position, group)
        self._latents = units.latents(position)
        self._linear = jax.vmap(lambda z: units.linear(z, units.data, group))(self._latents)
        mask = units.target.position.mask.local if group == LOCAL else None
        self._mask = jnp.ones((self.start.shape[1], 1), self.start.dtype) if mask is None else mask

    def density(self, at: Float[Array, "chain unit k"]) -> UnitDensity:
        """Return the densities of all units at these coordinates; one pass over the data."""
        log_prior, value, gradient = self._densities(at, with_value=True)
        assert value is not None  # requested by `with_value`
        return UnitDensity(log_prior, value, gradient)

    def gradient(self, at: Float[Array, "chain unit k"]) -> Float[Array, "chain unit k"]:
        """Return only their gradients; a shorter pass."""
        return self._densities(at, with_value=False)[2]

    def _densities(
        self, at: Float[Array, "chain unit k"], *, with_value: bool
    ) -> tuple[Float[Array, "chain unit"], Float[Array, "chain unit"] | None, Float[Array, "chain unit k"]]:
        """Return log prior, log likelihood if wanted, and the gradient of their sum."""
        units, group = self.units, self.group

        def one(latents: Arrays, linear: Any, at: jax.Array) -> tuple[jax.Array, jax.Array | None, jax.Array]:
            moved = units.to_latents(group, at)
            if group != LOCAL:
                moved = {k: jnp.moveaxis(moved[k], 0, axis) for k, axis in units.axes(group).items()}
            value, gradient = units.likelihood({**latents, **moved}, units.data, group, with_value=with_value)
            if linear is not None:
                constant, coefficients = linear
                gradient = gradient + coefficients
                if value is not None:
                    value = value + constant + jnp.sum(_wide(at) * _wide(coefficients), axis=1)
            log_prior, pull_back = jax.vjp(self._prior, _wide(at))
            (of_prior,) = pull_back(jnp.ones_like(log_prior))
            return log_prior, value, (gradient + of_prior.astype(at.dtype)) * self._mask

        return jax.vmap(one)(self._latents, self._linear, at)

    def _prior(self, at: Float[Array, "unit k"]) -> Float[Array, " unit"]:
        """Return the log prior of each unit of one chain."""
        return self.units.target.model.unit_prior(self.group, self.units.to_latents(self.group, at))

    def scale(self, information: Position) -> UnitScale:
        """Return their scale, from the curvature of the prior and the outer products of the model's `unit_design`."""
        units, group = self.units, self.group
        own = units.take(_one_chain(information), group)[0, :, 0].astype(jnp.float64)
        is_unit = self._mask[:, 0] > 0

        def one(latents: Arrays, at: jax.Array) -> tuple[jax.Array, jax.Array]:
            # Taken at 0 and not at the units: a scale that depended on them would need a correction in their Metropolis ratio.
            zero = jnp.zeros_like(_wide(at))
            _, bend = jax.jvp(jax.grad(lambda q: self._prior(q).sum()), (zero,), (zero + 1,))
            of_prior = jnp.sum(jnp.where(is_unit[:, None], -bend, 0), axis=0) / is_unit.sum()
            root = jnp.maximum(of_prior, 1e-12) ** -0.5
            other, design = units.target.model.unit_design(group, latents)
            weight = units.take(_one_chain(information), other)[0, :, 0].astype(jnp.float64)
            rows = _wide(units.to_units(group, design)) * root[None]
            gram = (rows * weight[:, None]).T @ rows / jnp.maximum(weight.sum(), 1e-12)
            values, vectors = jnp.linalg.eigh(gram)
            stretch = (1 + own[:, None] * jnp.maximum(values, 0)[None]) ** -0.5 * self._mask
            return (root[:, None] * vectors).astype(at.dtype), stretch.astype(at.dtype)

        return UnitScale(*jax.vmap(one)(self._latents, self.start))

    def place(self, at: Float[Array, "chain unit k"]) -> Position:
        """Return the positions of the chains with these units."""
        return self.units.place(self.position, self.group, at)


def _one_chain(position: Position) -> Position:
    return jax.tree.map(lambda x: x[None], position)


def _wide(x: jax.Array) -> jax.Array:
    return x.astype(jnp.float64)


def _names_of(target: ModelTarget, group: str, declared: str) -> list[str]:
    """Return the latents of a group in the order of their coordinates."""
    model = target.model
    if group == LOCAL:
        return list(target.position.local)
    if group not in model.blocks:
        raise ConfigError(
            f"{type(model).__name__}.{declared} names '{group}', and `blocks` has {', '.join(model.blocks) or 'none'}",
            "name `local`, or a block that the model declares (docs/contracts/model.md)",
        )
    return sorted(model.blocks[group])


def _check_groups(target: ModelTarget, names: dict[str, list[str]], declared: str, *, moves_rest: bool) -> None:
    """Refuse latents that nothing moves, and latents in groups that are not real numbers."""
    model, found = type(target.model).__name__, [name for group in names.values() for name in group]
    left = [] if moves_rest else [name for name in target.position.shapes if name not in found]
    if left:
        raise ConfigError(
            f"{model}: no group of `{declared}` has the latents {', '.join(left)}, which would never move",
            "give them a group, or use another kernel",
        )
    with jax.ensure_compile_time_eval():
        z = {k: jnp.full(s, -1.5, jnp.float64) for k, s in target.position.shapes.items()}
        moved = [k for k, v in dict(target.bijector.forward(z)).items() if k in found and not np.array_equal(v, z[k])]
    if moved:
        raise ConfigError(
            f"{model}: the latents {', '.join(moved)} have limits, and units need real numbers",
            "sample their logarithms, or use another kernel",
        )
