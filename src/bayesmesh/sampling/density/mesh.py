"""Configure devices, build the (chain, data) mesh, and move arrays between the host and the devices."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, Sharding

from bayesmesh.config.blocks import ComputeSettings, MeshSettings
from bayesmesh.errors import DeviceError
from bayesmesh.store.machine import usable_cores
from bayesmesh.store.slurm_job import GPUS

CHAIN_AXIS = "chain"
DATA_AXIS = "data"

GIVEN = (*GPUS, "CUDA_VISIBLE_DEVICES")
"""Variables that name or count the GPUs of a job: set by Slurm, or by `--gpus`."""

LEAST_SHARE = 2.5e-3
"""Expected seconds of one gradient for each core that shares its rows, or its chains if they step together. Cores synchronise at
every gradient, or at every iteration, and repeat all else; and XLA itself spreads the loops of a long gradient over several cores."""

LEAST_SHARE_ALONE = 2e-4
"""The same for cores that share chains that step alone: these synchronise only during warmup."""

_log = logging.getLogger("bayesmesh")


def configure_jax(compute: ComputeSettings, cores: int | None = None) -> None:
    """Set platform, precision and devices; call it before any array is made.

    On a CPU this creates one virtual device per core, because XLA runs short loops of elementwise operations on one core and
    only a mesh over virtual devices uses the others. A device count in `XLA_FLAGS` takes precedence.

    Args:
        compute: platform and precision.
        cores: cores that this job may use; if None, all on which the process may run.

    Raises:
        DeviceError: the platform is not available to a single process.
    """
    platform = {"gpu": "cuda"}.get(compute.platform, compute.platform)
    if platform != "auto":
        jax.config.update("jax_platforms", platform)
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        # If the mesh needs more devices, `build_mesh` raises, for any platform.
        jax.config.update("jax_num_cpu_devices", cores or usable_cores())
    arithmetic = {
        # Log densities are summed in float64; arrays have explicit dtypes.
        "jax_enable_x64": True,
        "jax_default_matmul_precision": compute.matmul_precision,
        "jax_numpy_rank_promotion": "allow",
        # Otherwise environment variables of JAX would change the draws, even in the middle of a chain.
        "jax_default_prng_impl": "threefry2x32",
        "jax_threefry_partitionable": True,
        "jax_random_seed_offset": 0,
        "jax_numpy_dtype_promotion": "standard",
    }
    for name, value in arithmetic.items():
        jax.config.update(name, value)
    if compute.processes == 1:
        # Several processes must join before they query devices.
        find_devices(compute)


def find_devices(compute: ComputeSettings) -> list[jax.Device]:
    """Return the devices of all processes.

    Raises:
        DeviceError: the platform is not available.
    """
    try:
        return jax.devices()
    # JAX asserts, without a message, that it has found a device of the platform.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition(" (")[0] or "JAX finds no such device, or has no software for it"
        named = os.environ.get("JAX_PLATFORMS", "")
        origin = f" (JAX_PLATFORMS={named})" if compute.platform == "auto" and named else ""
        raise DeviceError(
            f"compute.platform: {compute.platform}{origin} is not available here: {reason}",
            "use `platform: auto`, run on a machine that has the device, or install that platform's lock with"
            " `make env ACCELERATOR=cuda`",
        ) from error


def build_mesh(compute: ComputeSettings, *, num_chains: int, is_sharded: bool) -> Mesh:
    """Return the mesh of one program.

    Args:
        compute: the requested mesh; `auto` takes all devices, for rows if `is_sharded`, else for chains.
        num_chains: chains of the program; `auto` uses a number of devices that divides them.
        is_sharded: whether `auto` spreads rows rather than chains.

    Raises:
        DeviceError: too few devices, or the platform is not available.
    """
    devices = find_devices(compute)
    if jax.process_count() != compute.processes:
        raise DeviceError(
            f"compute.processes: {compute.processes} processes are to share the devices, but there are {jax.process_count()}",
            "only `compile` and `sample` run in several processes",
        )
    shares = [[d for d in devices if d.process_index == p] for p in range(compute.processes)]
    available = min(map(len, shares)) * compute.processes
    if compute.mesh == "auto":
        shape = (1, available) if is_sharded else (math.gcd(num_chains, available), 1)
    else:
        shape = (compute.mesh.chain, compute.mesh.data)
    needed = shape[0] * shape[1]
    if needed > available:
        of_each = f", {available // compute.processes} in each process" if compute.processes > 1 else ""
        raise DeviceError(
            f"compute.mesh: chain {shape[0]} x data {shape[1]} needs {needed} devices, but this job sees {available} ({devices[0].platform}){of_each}",
            "use `mesh: auto`, fewer devices, or give the job more; on a CPU a device is a core (`--cores`), and chain groups share them",
        )
    axes = (CHAIN_AXIS, DATA_AXIS), (AxisType.Auto,) * 2
    if compute.processes == 1:
        return jax.make_mesh(shape, axes[0], axis_types=axes[1], devices=devices[:needed])
    # A process has whole columns, with all chains of its rows, so that it writes one block of rows.
    each = shape[1] // compute.processes
    columns = [np.reshape(np.array(share[: shape[0] * each]), (shape[0], each)) for share in shares]
    return Mesh(np.concatenate(columns, axis=1), axes[0], axis_types=axes[1])


def choose_cores(
    seconds: float, num_chains: int, num_cores: int, *, shares_rows: bool, steps_alone: bool
) -> MeshSettings:
    """Return the numbers of CPU cores, along chains and rows, that are worth their synchronisation.

    If as many could share either, they share rows, because the data are then stored once.

    Args:
        seconds: expected time of a gradient of all chains on one core.
        num_chains: chains of the program.
        num_cores: available cores.
        shares_rows: whether rows may be shared.
        steps_alone: whether each core can step its own chains without the others.

    >>> choose_cores(5e-4, 8, 4, shares_rows=True, steps_alone=False)
    MeshSettings(chain=1, data=1)
    >>> choose_cores(5e-4, 8, 4, shares_rows=True, steps_alone=True)
    MeshSettings(chain=2, data=1)
    >>> choose_cores(6e-3, 8, 4, shares_rows=True, steps_alone=True)
    MeshSettings(chain=4, data=1)
    >>> choose_cores(6e-3, 8, 2, shares_rows=True, steps_alone=True)
    MeshSettings(chain=1, data=2)
    """
    for_rows = min(num_cores, int(seconds / LEAST_SHARE)) if shares_rows else 1
    most = min(num_cores, int(seconds / (LEAST_SHARE_ALONE if steps_alone else LEAST_SHARE)))
    for_chains = max(n for n in range(1, max(1, most) + 1) if num_chains % n == 0)
    return MeshSettings(data=for_rows) if for_rows >= max(2, for_chains) else MeshSettings(chain=for_chains)


def mesh_of_datasets(compute: ComputeSettings, num_datasets: int) -> Mesh:
    """Return the mesh over whose chain axis many datasets are spread; `auto` takes all devices that get at least one dataset.

    Raises:
        DeviceError: too few devices, or the platform is not available.
    """
    asked = compute.mesh.chain if compute.mesh != "auto" else min(num_datasets, len(find_devices(compute)))
    mesh = MeshSettings(chain=asked, data=1)
    return build_mesh(compute.model_copy(update={"mesh": mesh}), num_chains=asked, is_sharded=False)


def sharding(mesh: Mesh, *axes: str | None) -> NamedSharding:
    """Return a NamedSharding with the given axes in order."""
    return NamedSharding(mesh, PartitionSpec(*axes))


def compute_once[Made](mesh: Mesh, function: Callable[[jax.Array], Made], argument: jax.Array) -> Made:
    """Apply a function to a replicated array on the first device, and return the result on all devices.

    This is for computations that cannot be sharded, such as a matrix factorisation: on a CPU, all devices would repeat them on
    the same cores.

    Args:
        mesh: the devices.
        function: returns arrays of numbers.
        argument: the array.
    """
    if mesh.size == 1:
        return function(argument)

    def share(argument: jax.Array) -> Made:
        def nothing(argument: jax.Array) -> Made:
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function, argument))

        is_first = jax.lax.axis_index(mesh.axis_names) == 0
        made = jax.lax.cond(is_first, function, nothing, argument)
        return jax.lax.psum(made, mesh.axis_names)

    whole = PartitionSpec()
    # Results differ between devices until the sum; the checker cannot see that a branch varies over devices.
    return jax.shard_map(share, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(argument)


def describe_devices(mesh: Mesh) -> dict[str, object]:
    """Return platform, kind and number of the mesh's devices."""
    first = mesh.devices.flat[0]
    return {"platform": first.platform, "kind": first.device_kind, "mesh": dict(mesh.shape)}


def warn_of_idle_gpu(mesh: Mesh, compute: ComputeSettings, environ: Mapping[str, str] = os.environ) -> None:
    """Warn, once for all processes, if a job has a GPU but computes on the CPU by default."""
    given = [f"{name}={environ[name]}" for name in GIVEN if environ.get(name, "") not in ("", "-1", "NoDevFiles")]
    is_on_cpu = mesh.devices.flat[0].platform == "cpu" and compute.platform != "cpu"
    if given and is_on_cpu and jax.process_index() == 0:
        _log.warning(
            "warning: this job was given a GPU (%s), and JAX computes on the CPU: make the environment with"
            " `make env ACCELERATOR=cuda` and leave JAX_PLATFORMS unset; `bayesmesh doctor` in such a job says what is"
            " missing. Where the CPU is meant, say `compute: {platform: cpu}`, and ask for no GPU",
            given[0],
        )


Index = tuple[slice, ...]


def to_host(array: jax.Array) -> np.ndarray:
    """Return this process's part of an array; the whole array if it is replicated."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    shards = array.addressable_shards
    starts, stops = _box([s.index for s in shards], array.shape)
    part = np.empty([b - a for a, b in zip(starts, stops, strict=True)], array.dtype)
    for shard in shards:
        part[_within(shard.index, starts, array.shape)] = shard.data
    return part


def to_device(part: np.ndarray, at: Sharding, shape: Sequence[int]) -> jax.Array:
    """Return the array of `shape` to which every process contributes its part.

    Raises:
        ValueError: the part does not have the shape of `part_shape`.
    """
    shape = tuple(shape)
    if part.shape != part_shape(at, shape):
        raise ValueError(f"a part of shape {part.shape}, not {part_shape(at, shape)}")
    starts, _ = _box(at.addressable_devices_indices_map(shape).values(), shape)
    return jax.make_array_from_callback(shape, at, lambda index: part[_within(index, starts, shape)])


def part_shape(at: Sharding, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of this process's part of an array with this sharding."""
    starts, stops = _box(at.addressable_devices_indices_map(tuple(shape)).values(), shape)
    return tuple(b - a for a, b in zip(starts, stops, strict=True))


def _box(indices: Iterable[Index | None], shape: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the lower and upper bounds, by axis, of the smallest box around some shards."""
    bounds = [[s.indices(n)[:2] for s, n in zip(index or (), shape, strict=True)] for index in indices]
    axes = list(zip(*bounds, strict=True))
    return [min(a for a, _ in axis) for axis in axes], [max(b for _, b in axis) for axis in axes]


def _within(index: Index | None, starts: Sequence[int], shape: Sequence[int]) -> Index:
    """Return where a shard lies within the box that begins at `starts`."""
    bounds = [s.indices(n)[:2] for s, n in zip(index or (), shape, strict=True)]
    return tuple(slice(a - start, b - start) for (a, b), start in zip(bounds, starts, strict=True))


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
    at = NamedSharding(mesh, PartitionSpec(None, CHAIN_AXIS))
    return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, at), buffers)
