"""Step the chains of each device on that device alone, so that no device waits for another within a transition.

Under `jax.jit` a loop that ends when all chains are done asks all devices at every leapfrog step. A kernel whose
chains do not depend on each other within a step (`steps_alone`) needs no such question.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from bayesmesh.kernels.base import Kernel
from bayesmesh.sampling.sampling_density import Target
from bayesmesh.sampling.sampling_mesh import CHAIN_AXIS, DATA_AXIS


def can_step_alone(kernel: Kernel[Any, Any, Any, Any], target: Target, mesh: Mesh) -> bool:
    """Whether each device can step its own chains: it has all rows, and nothing else sums over devices."""
    return kernel.steps_alone and mesh.shape[CHAIN_AXIS] > 1 and mesh.shape[DATA_AXIS] == 1 and type(target) is Target


def step_by_device(
    step: Callable[..., tuple[Any, Any]], mesh: Mesh, chains: Any, num_others: int
) -> Callable[..., tuple[Any, Any]]:
    """Return a step that every device makes with its own chains.

    Args:
        step: from (keys, chains, *others) to (state, info); arrays of info are (chain, ...), or scalars.
        mesh: with chains on one of its axes and one device on the other.
        chains: `ChainState` of the shardings of every array.
        num_others: further arguments, which every device has in full.
    """
    lie = jax.tree.map(lambda s: s.spec, chains, is_leaf=lambda x: isinstance(x, NamedSharding))
    shared: list[bool] = []

    def of_device(*given: Any) -> tuple[Any, list[jax.Array]]:
        state, info = step(*given)
        leaves, form[:] = (found := jax.tree.flatten(info))[0], [found[1]]
        shared[:] = [leaf.ndim == 0 for leaf in leaves]
        return state, [leaf[None] if is_shared else leaf for leaf, is_shared in zip(leaves, shared, strict=True)]

    form: list[Any] = []
    spread = jax.shard_map(
        of_device, mesh=mesh, in_specs=(P(CHAIN_AXIS), lie, *[P()] * num_others),
        out_specs=(lie.kernel, P(CHAIN_AXIS)), check_vma=False,
    )  # fmt: skip

    def whole(*given: Any) -> tuple[Any, Any]:
        state, leaves = spread(*given)
        # A number that all chains share, such as the steps of the longest trajectory, is the largest of the devices.
        joined = [leaf.max(axis=0) if is_shared else leaf for leaf, is_shared in zip(leaves, shared, strict=True)]
        return state, jax.tree.unflatten(form[0], joined)

    return whole


def lay_by_chain(mesh: Mesh, buffers: Any) -> Any:
    """Keep buffers (iteration, chain, ...) on the devices of their chains until a program ends."""

    def lay(x: jax.Array) -> jax.Array:
        spec = P(None, CHAIN_AXIS) if x.ndim > 1 else P()
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    return jax.tree.map(lay, buffers)
