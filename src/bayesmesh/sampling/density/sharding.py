"""The second way to shard a program: each device's share of the likelihood, and the sums, are stated explicitly.

By default the compiler infers the sums over devices (`sampling_density.Target` under `jax.jit` with `NamedSharding`).
Here `jax.shard_map` runs the likelihood once per device, on its rows, local latents and chains, and one
`jax.lax.psum` over the data axis sums values and gradients of shared latents. It follows TensorFlow
Probability's tutorial "Distributed inference with JAX"; docs/decisions/0001-one-program-on-all-meshes.md
explains why it does not use TFP's `Sharded` distributions.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from bayesmesh.data.base import DataSpec
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.log_density import Arrays, Target
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, DATA_AXIS
from bayesmesh.sampling.density.rows import RowLayout


def make_target(model: Model, spec: DataSpec, layout: RowLayout, mesh: Mesh, sharding: str) -> Target:
    """Return the log density, sharded in one of the two ways of `compute.sharding`; both have the same values and gradients."""
    stated = sharding == "shard_map"
    target = CollectiveTarget(model, spec, layout, mesh) if stated else Target(model, spec, layout)
    target.uses_gpu_path = _takes_gpu_path(model, list(mesh.devices.flat))
    return target


def _takes_gpu_path(model: Model, devices: Sequence[jax.Device]) -> bool:
    """Return whether all devices are NVIDIA GPUs for which the model's GPU path is written."""
    path = model.gpu_path
    if path.num_devices is not None and len(devices) > path.num_devices:
        return False
    for device in devices:
        capability = str(getattr(device, "compute_capability", ""))
        is_known = device.platform == "gpu" and capability[:1].isdigit()
        if not (is_known and path.least_capability <= float(capability) <= path.most_capability):
            return False
    return True


class CollectiveTarget(Target):
    """A `Target` that states the collectives of its likelihood.

    The prior stays with the compiler: it is a distribution over all rows at once, and may couple them.
    Momentum has the sharding of positions, so each device draws, moves and sums its own part.

    Args:
        model, spec, layout: as for `Target`.
        mesh: the (chain, data) mesh that the layout was made for.
    """

    def __init__(self, model: Model, spec: DataSpec, layout: RowLayout, mesh: Mesh) -> None:
        super().__init__(model, spec, layout)
        self.mesh = mesh

    def likelihood_and_gradient(
        self, latents: Arrays, data: Arrays
    ) -> tuple[Float[Array, " chain"], dict[str, jax.Array]]:
        """Return the log likelihood of a batch of chains and its gradient, with the collectives stated."""
        lies = {k: P(CHAIN_AXIS, DATA_AXIS) if k in self.model.local_latents else P(CHAIN_AXIS) for k in latents}
        share = jax.shard_map(
            self._share_and_sum,
            mesh=self.mesh,
            in_specs=(lies, P(DATA_AXIS)),
            out_specs=(P(CHAIN_AXIS), lies),
            # Without these types, a sum inside a differentiated function silently gives a wrong gradient.
            check_vma=True,
        )
        return share(latents, data)

    def _share_and_sum(self, latents: Arrays, data: Arrays) -> tuple[jax.Array, dict[str, jax.Array]]:
        """Compute one device's chains and rows; values and shared gradients are summed over the data axis."""
        shared = {k: v for k, v in latents.items() if k not in self.model.local_latents}
        # Each device differentiates with respect to its own copy: JAX would otherwise sum gradients that it derives itself,
        # but not those of a model with a faster path.
        shared = jax.lax.pcast(shared, DATA_AXIS, to="varying")
        data = jax.lax.pcast(data, CHAIN_AXIS, to="varying")
        value, gradient = super().likelihood_and_gradient({**latents, **shared}, data)
        value, summed = jax.lax.psum((value, {k: gradient[k] for k in shared}), DATA_AXIS)
        return value, {**gradient, **summed}
