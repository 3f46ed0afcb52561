"""The layout of named latents in a position: made once per program, it maps latents to positions and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Position


class Block(NamedTuple):
    """Coordinates that belong to the entries of one axis, such as all films, without the names of latents.

    Attributes:
        part: ``shared`` or ``local``.
        indices: (entry, width) int64 into the axis S of shared coordinates; for local ones (1, width) into the axis k,
            the same for every entry.
    """

    part: str
    indices: np.ndarray


def resize_local(
    shapes: Mapping[str, jax.ShapeDtypeStruct], local: Mapping[str, int], length: int, lead: int = 0
) -> dict[str, jax.ShapeDtypeStruct]:
    """Return abstract latents in which local ones have another number of entries.

    Args:
        shapes: latent -> its shape, with `lead` axes before its own.
        local: local latent -> its axis that runs over the entries.
        length: number of entries.
        lead: number of leading batch axes.
    """
    return {
        k: jax.ShapeDtypeStruct(
            [length if k in local and i == lead + local[k] else n for i, n in enumerate(v.shape)], v.dtype
        )
        for k, v in shapes.items()
    }


class PositionLayout:
    """Where each latent's unconstrained coordinates are in a `Position`.

    Args:
        shapes: latent -> shape of one draw in unconstrained space, local axes with their own length.
        local: local latent -> its axis that runs over the entries.
        num_entries: length of that axis: users, groups or rows.
        padded_entries: number of entries including padding.
        blocks: group of entries -> latent -> its axis over them, for shared latents.
        dtype: dtype of positions.

    Attributes:
        shared, local: latent -> its coordinates' slice on the last axis, in sorted order.
        shared_size, local_size: S, and k: coordinates of one entry.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        local: Mapping[str, int],
        num_entries: int,
        padded_entries: int,
        dtype: jnp.dtype,
        blocks: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        self.shapes, self.axes, self.dtype = dict(sorted(shapes.items())), dict(local), dtype
        self.num_entries, self.padded_entries = num_entries, padded_entries
        self._blocks = {} if blocks is None else {k: dict(v) for k, v in blocks.items()}
        self.shared, self.shared_size = self._slices(is_local=False)
        self.local, self.local_size = self._slices(is_local=True)

    def _slices(self, *, is_local: bool) -> tuple[dict[str, slice], int]:
        slices, stop = {}, 0
        for name in self.shapes:
            if (name in self.axes) == is_local:
                width = math.prod(self._entry_shape(name))
                slices[name] = slice(stop, stop + width)
                stop += width
        return slices, stop

    def _entry_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a shared latent, or of one entry of a local one."""
        shape, axis = self.shapes[name], self.axes.get(name)
        return shape if axis is None else (*shape[:axis], *shape[axis + 1 :])

    @property
    def position_shapes(self) -> Position:
        """Abstract position of one chain: shared (S,), local (entry, k); None for a part without coordinates."""
        shared = jax.ShapeDtypeStruct((self.shared_size,), self.dtype) if self.shared else None
        local = jax.ShapeDtypeStruct((self.padded_entries, self.local_size), self.dtype) if self.local else None
        return Position(shared, local)  # type: ignore[arg-type]  # shapes stand in for arrays

    @property
    def mask(self) -> Position:
        """1 for entries and 0 for the padding after them, (entry, 1); None if nothing is padded."""
        if not self.local or self.padded_entries == self.num_entries:
            return Position(None, None)
        return Position(None, (jnp.arange(self.padded_entries) < self.num_entries).astype(self.dtype)[:, None])

    def unpack(self, position: Position, dtype: jnp.dtype) -> dict[str, jax.Array]:
        """Return latent -> its unconstrained array for one chain, with the prior's own axes and the given dtype."""
        z: dict[str, jax.Array] = {}
        if position.shared is not None:
            z |= _split(position.shared.astype(dtype), self.shared, self._entry_shape)
        if position.local is not None:
            entries = _split(position.local[: self.num_entries].astype(dtype), self.local, self._entry_shape)
            z |= {k: jnp.moveaxis(v, 0, self.axes[k]) for k, v in entries.items()}
        return {k: z[k] for k in self.shapes}

    def pack(self, z: Mapping[str, jax.Array]) -> Position:
        """Return the position of one chain; padding is 0."""
        shared = [jnp.ravel(z[k]).astype(self.dtype) for k in self.shared]
        rows = [jnp.moveaxis(z[k], self.axes[k], 0).astype(self.dtype) for k in self.local]
        local = [x.reshape(x.shape[0], -1) for x in rows]
        behind = self.padded_entries - self.num_entries
        return Position(
            jnp.concatenate(shared) if shared else None,
            jnp.pad(jnp.concatenate(local, axis=1), ((0, behind), (0, 0))) if local else None,
        )

    def blocks(self) -> dict[str, Block]:
        """Return the blocks of coordinates that belong to one axis: declared ones, and ``local`` for the entries.

        They say which coordinates form one unit, for each unit of the axis; a block metric needs nothing else.
        """
        found = {}
        for group, latents in self._blocks.items():
            columns = []
            for name in sorted(latents):
                where = self.shared[name]
                index = np.arange(where.start, where.stop).reshape(self.shapes[name])
                index = np.moveaxis(index, latents[name], 0)
                columns.append(index.reshape(index.shape[0], -1))
            found[group] = Block("shared", np.concatenate(columns, axis=1))
        if self.local:
            found["local"] = Block("local", np.arange(self.local_size)[None])
        return found


def _split(
    flat: jax.Array, slices: Mapping[str, slice], shape_of: Callable[[str], tuple[int, ...]]
) -> dict[str, jax.Array]:
    """Split the last axis of (..., size) into the latents' own axes."""
    sizes = [s.stop - s.start for s in slices.values()]
    pieces = jax.lax.split(flat, sizes, axis=flat.ndim - 1) if len(sizes) > 1 else [flat]
    lead = flat.shape[:-1]
    return {k: piece.reshape(*lead, *shape_of(k)) for k, piece in zip(slices, pieces, strict=True)}
