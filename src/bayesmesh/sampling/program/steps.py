"""Step the chains of each device on that device alone, so that no device waits for another within a transition.

Under `jax.jit`, a loop that ends when all chains are done synchronises all devices at every leapfrog step. A kernel whose
chains do not depend on each other within a step (`steps_alone`) needs no such synchronisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bayesmesh.kernels.base import Kernel
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS


def can_step_alone(kernel: Kernel[Any, Any, Any, Any], target: Target, mesh: Mesh) -> bool:
    """Return whether each device can step its own chains: it has all rows, and nothing else sums over devices."""
    return kernel.steps_alone and mesh.shape[CHAIN_AXIS] > 1 and mesh.shape[DATA_AXIS] == 1 and type(target) is Target


def on_each_device(
    function: Callable[..., Any], mesh: Mesh, lie: tuple[Any, ...], made_lie: tuple[Any, ...]
) -> Callable[..., Any]:
    """Return a function that every device evaluates for its own chains.

    Args:
        function: returns a tree of arrays, and of numbers that all chains share.
        mesh: mesh with chains along one axis and a single device along the other.
        lie: partition specifications of each argument.
        made_lie: partition specifications of the results.
    """
    shared: list[bool] = []

    def of_device(*given: Any) -> Any:
        made = function(*given)
        shared[:] = [leaf.ndim == 0 for leaf in jax.tree.leaves(made)]
        return jax.tree.map(lambda leaf: leaf if leaf.ndim else leaf[None], made)

    spread = jax.shard_map(of_device, mesh=mesh, in_specs=lie, out_specs=made_lie, check_vma=False)

    def whole(*given: Any) -> Any:
        leaves, form = jax.tree.flatten(spread(*given))
        # A number that all chains share, such as the steps of the longest trajectory, is the maximum over devices.
        joined = [leaf.max(axis=0) if is_shared else leaf for leaf, is_shared in zip(leaves, shared, strict=True)]
        return jax.tree.unflatten(form, joined)

    return whole


def specs_of(shardings: Any) -> Any:
    """Return the partition specifications of a tree of shardings."""
    return jax.tree.map(lambda s: s.spec, shardings, is_leaf=lambda x: isinstance(x, NamedSharding))


def lay_by_chain[Buffers](mesh: Mesh, buffers: Buffers) -> Buffers:
    """Keep buffers (iteration, chain, ...) on the devices of their chains until a program ends."""
    at = NamedSharding(mesh, P(None, CHAIN_AXIS))
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, at), buffers)
