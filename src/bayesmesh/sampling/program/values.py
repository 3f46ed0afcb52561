"""Arguments of the programs of a chain group, and the state of its chains: names, sharding, finiteness."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Array, Bool

from bayesmesh.kernels.base import Axes, Position
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS, sharding


class GroupKey(NamedTuple):
    """Source of the randomness of a chain group: the root seed and the absolute number of its first chain."""

    seed: int
    first_chain: int


class Arguments(NamedTuple):
    """Numbers of a run that are arguments of its programs.

    Attributes:
        seed, first_chain: () uint32, from a `GroupKey`.
        attempt: (chain,) uint32, which of its possible starting points a chain takes.
        num_warmup: () int32.
        spread, widening, learning_rate: () float64, of the starting points.
        center: (chain, ...) points around which the chains start; None for the origin.
        model, kernel: numeric options, () float64 or int64.
    """

    seed: Any
    first_chain: Any
    attempt: Any
    num_warmup: Any
    spread: Any
    widening: Any
    learning_rate: Any
    center: Position | None
    model: dict[str, Any]
    kernel: dict[str, Any]


class ChainState(NamedTuple):
    """The chains of a group and the adaptation of their kernel; this alone is the checkpoint."""

    kernel: Any
    adaptation: Any


_MESH_AXES = {"chain": CHAIN_AXIS, "entry": DATA_AXIS, "spread": DATA_AXIS, None: None}


def place[Tree](mesh: Mesh, shapes: Tree, axes: Tree) -> Tree:
    """Return the sharding of every array of a tree from the `Axes` declared in its place.

    Axes in place of a tuple apply to each of its arrays. The checks of a kernel compare their number with that of its arrays.
    """

    def one(shape: jax.ShapeDtypeStruct | None, declared: Axes) -> NamedSharding | None:
        if shape is None:
            return None
        num_parts = mesh.shape[DATA_AXIS]
        fitting = [
            None if name == "spread" and length % num_parts else name
            for name, length in zip(declared.names, shape.shape, strict=False)
        ]
        return sharding(mesh, *(_MESH_AXES[name] for name in fitting))

    def each(declared: Axes, shapes: object) -> object:
        # A part of a position without coordinates is None, although its axes are declared.
        return jax.tree.map(lambda shape: one(shape, declared), shapes, is_leaf=lambda x: x is None)

    return jax.tree.map(each, axes, shapes, is_leaf=lambda x: isinstance(x, Axes))


def is_finite(state: Any) -> Bool[Array, " chain"]:
    """Return which chains have only finite numbers in the position, densities and gradient of their state."""
    # The state of a kernel without gradients has none.
    known = [getattr(state, name, ()) for name in ("position", "log_prior", "log_likelihood", "gradient")]
    each = [jnp.isfinite(x).all(axis=range(1, x.ndim)) for x in jax.tree.leaves(known)]
    return jnp.stack(each).all(axis=0)


def name_leaves(tree: object) -> list[str]:
    """Return a name for each leaf, in the order of `jax.tree.leaves`."""
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return [jax.tree_util.keystr(path, simple=True, separator=".") for path in paths]
