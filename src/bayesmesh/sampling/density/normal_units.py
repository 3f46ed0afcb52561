"""Exact draws of a model's units that are normal given all else, over a mesh, for a batch of chains.

The precision of a unit and its linear term are sums over its rows, taken tile by tile. A unit of ``local`` lies with its
rows, and units of a block are summed over devices. In addition to the positions, memory holds k (k + 3) / 2 numbers for each
unit, and as many for each row of a tile.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from bayesmesh.kernels.base import Position
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.units import LOCAL, Arrays, BoundGroups, ModelTarget


class BoundNormals(BoundGroups):
    """The normal groups of a model, on its data: what kernels see as `kernels.targets.Normals`.

    Args:
        target: the model's.
        data: arrays with `Target.data_shapes`.

    Raises:
        ConfigError: the model has no block with the name of a group, or has latents that nothing moves or grouped latents with
            bounds.
    """

    def __init__(self, target: ModelTarget, data: Arrays) -> None:
        model = type(target.model)
        super().__init__(target, data, "normal_groups", moves_rest=model.redraw_rest is not Model.redraw_rest)

    def draw(self, key: Key[Array, " chain"], position: Position, group: int) -> Position:
        """Draw all units of a group anew, given all other coordinates of positions (chain, ...)."""
        name = self.groups[group]

        def one(key: jax.Array, latents: Arrays) -> jax.Array:
            precision, linear = self._posterior(latents, name)
            return draw_normals(key, precision, linear).astype(self.target.dtype)

        drawn = jax.vmap(one)(key, self.latents(position))
        mask = self.target.position.mask.local if name == LOCAL else None
        return self.place(position, name, drawn if mask is None else drawn * mask[None])

    def redraw(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make the model's `redraw`, which leaves the likelihood unchanged and the prior invariant."""
        return jax.vmap(lambda k, q: self._moved(q, lambda z: self.target.model.redraw(k, z)))(key, position)

    def redraw_rest(self, key: Key[Array, " chain"], position: Position) -> Position:
        """Make the model's `redraw_rest` of the latents outside all groups."""

        def one(key: jax.Array, position: Position, latents: Arrays) -> Position:
            sums = self._rest_sums(latents)
            return self._moved(position, lambda z: self.target.model.redraw_rest(key, z, sums))

        return jax.vmap(one)(key, position, self.latents(position))

    def _moved(self, position: Position, move: Any) -> Position:
        """Return one chain's position after a map of its latents, which is computed in float64."""
        layout, bijector = self.target.position, self.target.bijector
        latents = dict(bijector.forward(layout.unpack(position, jnp.dtype("float64"))))
        return layout.pack(dict(bijector.inverse(dict(move(latents)))))

    def _posterior(self, latents: Arrays, group: str) -> tuple[Float[Array, "unit k k"], Float[Array, "unit k"]]:
        """Return the precision and linear term of each unit of a group, float64, for the latents of one chain."""
        size = self.size(group)
        upper = np.triu_indices(size)
        sums = self._regression_sums(latents, group).astype(jnp.float64)
        of_data, linear = sums[:, : len(upper[0])], sums[:, len(upper[0]) :]
        precision = jnp.zeros((len(sums), size, size), jnp.float64)
        precision = precision.at[:, *upper].set(of_data).at[:, *upper[::-1]].set(of_data)
        zero = jnp.zeros((len(sums), size), jnp.float64)

        def prior(at: jax.Array) -> jax.Array:
            return self.target.model.unit_prior(group, {**latents, **self.to_latents(group, at)}).sum()

        # Priors are independent normals, so that one direction gives all second derivatives.
        slope, bend = jax.jvp(jax.grad(prior), (zero,), (zero + 1,))
        return precision - jnp.eye(size)[None] * bend[:, None], linear + slope

    def _regression_sums(self, latents: Arrays, group: str) -> Float[Array, "unit sums"]:
        """Return sums over the rows of each unit: of products of coefficients, as upper triangles, and of their products with the response."""
        upper = np.triu_indices(self.size(group))
        num_units = 0 if group == LOCAL else len(self.target.position.blocks()[group].indices)

        def tile(latents: Arrays, rows: Arrays, data: Arrays, _: Any) -> jax.Array:
            found = self.target.model.unit_regression(group, latents, rows)
            design = self.to_units(group, found.design)
            products = jnp.concatenate([design[:, upper[0]] * design[:, upper[1]], design * found.response[:, None]], 1)
            products = jnp.where(
                data["is_row"][:, None], products * jnp.broadcast_to(found.weight, data["is_row"].shape)[:, None], 0
            )
            if group != LOCAL:
                assert found.unit is not None  # required of `unit_regression`
                return jax.ops.segment_sum(products, found.unit, num_units)
            if "entry_of_row" not in data:
                return products
            return jax.ops.segment_sum(products, data["entry_of_row"], self.target.layout.tile_entries)

        found: jax.Array = self.over_tiles(tile, latents, self.data, is_summed=group != LOCAL)
        return found

    def _rest_sums(self, latents: Arrays) -> Arrays:
        def tile(latents: Arrays, rows: Arrays, data: Arrays, _: Any) -> Arrays:
            return self.target.model.rest_sums(latents, rows, data["is_row"])

        found: Arrays = self.over_tiles(tile, latents, self.data, is_summed=True)
        return found


def draw_normals(
    key: Key[Array, ""], precision: Float[Array, "unit k k"], linear: Float[Array, "unit k"]
) -> Float[Array, "unit k"]:
    """Draw a point from each normal with density exp(-x^T P x / 2 + x^T h).

    Args:
        key: a typed key; the draw of a unit depends on its number, and not on how many there are.
        precision: P of each unit.
        linear: h of each unit.
    """
    factor = jnp.linalg.cholesky(precision)
    white = jax.lax.linalg.triangular_solve(factor, linear[..., None], left_side=True, lower=True)
    white = white + jax.random.normal(key, linear.shape, linear.dtype)[..., None]
    solved = jax.lax.linalg.triangular_solve(factor, white, left_side=True, lower=True, transpose_a=True)
    return solved[..., 0]
