"""Choose what the configuration leaves open: the tile of rows, and the lengths of a call and of a segment."""

from __future__ import annotations

import inspect
import logging
import math
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

from bayesmesh.config.blocks import (
    AUTO,
    ComputeSettings,
    MeshSettings,
    SamplingSettings,
    check_chains,
    check_start,
)
from bayesmesh.config.data_spec import ReadBlocks
from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Kernel
from bayesmesh.kernels.hamiltonian.metrics.auto import choose_integrator, choose_metric
from bayesmesh.models.base import Model
from bayesmesh.sampling.density.costs import cost_of_gradient, expected_seconds, largest_array, most_elements, row_tile
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.mesh import (
    CHAIN_AXIS,
    DATA_AXIS,
    build_mesh,
    choose_cores,
    find_devices,
    mesh_of_datasets,
)
from bayesmesh.sampling.density.rows import lay_out_rows
from bayesmesh.sampling.density.sharding import make_target
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.start_points import find_points

_log = logging.getLogger("bayesmesh")

MOST_CHAINS_TOGETHER = {"cpu": 32}
"""Most chains of many datasets that step together on a device, by platform: each waits for the longest trajectory of all."""

SLICE_SECONDS = 2.0
"""Target time of one call of a program; decides how often progress is shown, and how soon a stop request is noticed."""

SLICE_BYTES = 64 * 2**20
"""Bound on the draws of one call, on the devices."""

SEGMENT_BYTES = 64 * 2**20
"""Bound on the draws of a segment; the host holds one that grows and one that is being written, the latter also in encoded form."""

SEGMENT_DRAWS = 2**14
"""Bound on the length of a segment: a statistic with one number per draw still has shards of a sensible size."""


class ProgramSettings(NamedTuple):
    """Everything except the data from which the program of a chain group is made.

    Attributes:
        experiment, model_name, kernel_name: names, for messages.
        model, kernel: the components, each as its class and its options.
        sampling, compute: the experiment's settings.
        num_chains: chains of the program.
    """

    experiment: str
    model_name: str
    kernel_name: str
    model: tuple[type[Model], Any]
    kernel: tuple[type[Kernel[Any, Any, Any, Any]], Any]
    sampling: SamplingSettings
    compute: ComputeSettings
    num_chains: int


def make_program(
    settings: ProgramSettings,
    data_spec: DataSpec,
    slice_draws: int,
    read_blocks: ReadBlocks | None = None,
) -> Program:
    """Return the program of one chain group.

    Args:
        settings: the components, and how they are sampled.
        data_spec: the data.
        slice_draws: most iterations of a call.
        read_blocks: reads the rows, for a model that starts from the data.

    Raises:
        DeviceError: its mesh does not fit the devices.
        ConfigError: the kernel needs another number of chains, or lacks a method or a statistic; or its start cannot be found on
            this mesh.
    """
    compute, sampling, name = settings.compute, settings.sampling, settings.kernel_name
    (model_class, options), (kernel_class, kernel_options) = settings.model, settings.kernel
    if model_class.reads_whole(options):
        _check_whole(settings)
    model = model_class(options, data_spec)
    where, least, multiple = f"experiment '{settings.experiment}'", kernel_class.min_chains, kernel_class.chain_multiple
    check_chains(where, name, settings.num_chains, least, multiple)
    if kernel_class.starts_from_prior:
        check_start(where, name, sampling.initial)
        _check_prior(model, settings)
    if missing := sorted(kernel_class.__abstractmethods__):
        raise ConfigError(
            f"{inspect.getfile(kernel_class)}: kernel {name}: lacks the method {', '.join(missing)}",
            "define it; docs/contracts/kernel.md says what each returns",
        )
    if missing := sorted({"lp", "log_likelihood", "n_steps"} - getattr(kernel_class, "statistics", {}).keys()):
        raise ConfigError(
            f"{inspect.getfile(kernel_class)}: kernel {name}: its statistics lack {', '.join(missing)}",
            "declare them in `statistics` and return them in Info: the posterior is made of them",
        )
    devices, target, tile = _lay_out(settings, data_spec, model)
    if sampling.initial.method == "laplace" and compute.sharding == "shard_map" and devices.shape[CHAIN_AXIS] > 1:
        raise ConfigError(
            f"{where}: key 'sampling.initial.method': laplace differentiates at a single mode, which shard_map cannot"
            f" spread over {devices.shape[CHAIN_AXIS]} devices for chains",
            "use\n    compute:\n      sharding: named",
        )
    kernel_options = resolve_auto(kernel_options, target, is_at_mode=sampling.initial.method == "laplace")
    kernel = kernel_class(kernel_options, sampling.warmup)
    program = Program(target, kernel, devices, sampling, settings.num_chains, slice_draws)
    program.points = find_points(where, sampling.initial, target, read_blocks)
    return _of_datasets(program, settings, tile) if data_spec.dataset_counts else program


def _lay_out(settings: ProgramSettings, data_spec: DataSpec, model: Model) -> tuple[Mesh, Target, int]:
    """Return the mesh, the log density with its rows laid out over it, and the tile; for many datasets, those of one."""
    compute, chains = settings.compute, settings.num_chains
    # Condensed rows are few, so devices share the chains and need not wait for each other at every step.
    is_few = data_spec.is_condensed and compute.processes == 1
    shares_rows = settings.sampling.mode == "sharded" and not model.reads_whole(model.options) and not is_few

    def on(compute: ComputeSettings) -> tuple[Mesh, Target, int]:
        mesh = build_mesh(compute, num_chains=chains, is_sharded=shares_rows)
        platform = mesh.devices.flat[0].platform

        def make(tile: int) -> Target:
            layout = lay_out_rows(data_spec.num_rows, mesh.shape[DATA_AXIS], tile, data_spec.entry_counts)
            return make_target(model, data_spec, layout, mesh, compute.sharding)

        if compute.row_tile != "auto":
            return mesh, make(compute.row_tile), compute.row_tile
        most = most_elements(platform)
        if mesh.size == 1 and not data_spec.entry_counts and data_spec.num_rows * chains <= most:
            # For most small data, the target traced here is the final one.
            target = make(data_spec.num_rows)
            if largest_array(target, chains) <= most:
                return mesh, target, data_spec.num_rows
        tile = row_tile(model, data_spec, max(1, chains // mesh.shape[CHAIN_AXIS]), platform)
        return mesh, make(tile), tile

    on_one = compute.model_copy(update={"mesh": MeshSettings()})
    if data_spec.dataset_counts:
        return on(on_one)
    is_open = compute.mesh == AUTO and compute.processes == 1 and compute.sharding == "named"
    if not is_open or find_devices(compute)[0].platform != "cpu":
        return on(compute)
    mesh, target, tile = on(on_one)
    cores = choose_cores(
        expected_seconds(cost_of_gradient(target, chains), mesh), chains, len(find_devices(compute)),
        shares_rows=shares_rows, steps_alone=settings.kernel[0].steps_alone is True,
    )  # fmt: skip
    if cores == MeshSettings():
        return mesh, target, tile
    return on(compute.model_copy(update={"mesh": cores}))


def _of_datasets(program: Program, settings: ProgramSettings, tile: int) -> DatasetPrograms:
    """Return the programs of all datasets from those of one.

    Raises:
        ConfigError: the model has a latent for each row, but the datasets differ in their number of rows.
    """
    data_spec = program.target.spec
    counts = data_spec.dataset_counts
    mesh = mesh_of_datasets(settings.compute, len(counts))
    if (local := program.target.model.local_latents) and len(set(counts)) > 1:
        raise ConfigError(
            f"experiment '{settings.experiment}': key 'data.replicates': model '{settings.model_name}' has latents with an entry for"
            f" each row ({', '.join(sorted(local))}), and datasets have {min(counts)} to {max(counts)} rows",
            "give it a latent of fixed length, of which a row takes the entry that a field of integers names",
        )
    most_chains = MOST_CHAINS_TOGETHER.get(mesh.devices.flat[0].platform, settings.num_chains * len(counts))
    block = max(1, min(tile // data_spec.num_rows, most_chains // settings.num_chains))
    return DatasetPrograms(program, counts, mesh, block)


def _check_whole(settings: ProgramSettings) -> None:
    """Refuse to spread the rows of a model that needs all of them together.

    Raises:
        ConfigError: the experiment asks for several processes, or devices along the rows.
    """
    compute, where = settings.compute, f"experiment '{settings.experiment}'"
    if compute.processes > 1:
        raise ConfigError(
            f"{where}: key 'compute.processes': {compute.processes} processes would share the rows, which model"
            f" '{settings.model_name}' takes all together",
            "use\n    compute:\n      processes: 1\n    sampling:\n      mode: independent\n  with several chain_groups",
        )
    if compute.mesh != "auto" and compute.mesh.data > 1:
        raise ConfigError(
            f"{where}: key 'compute.mesh.data': {compute.mesh.data} devices would share the rows, which model"
            f" '{settings.model_name}' takes all together",
            "use `mesh: auto`, or `mesh: {chain: N}`, which spreads the chains",
        )


def _check_prior(model: Model, settings: ProgramSettings) -> None:
    """Refuse a kernel that starts from prior draws if the model cannot draw from its prior.

    Raises:
        ConfigError: the model has no draws that follow the density of its prior.
    """
    if not model.has_proper_prior:
        raise ConfigError(
            f"experiment '{settings.experiment}': key 'kernel.name': {settings.kernel_name} begins with draws of the prior, and"
            f" model '{settings.model_name}' has none: a test point, a flat prior or a potential",
            "give it a prior that can be drawn from, or use another kernel, such as nuts",
        )


def resolve_auto(options: Settings, target: Target, *, is_at_mode: bool) -> Settings:
    """Return the options of a kernel, with the metric and the integrator chosen for its target where they leave the choice open.

    Args:
        options: of the kernel.
        target: its log density.
        is_at_mode: whether the chains start from the normal at a mode.
    """
    shared, local = target.position.shared_size, target.position.local_size * target.layout.num_entries
    has_unit_scale = target.model.has_unit_scale
    open_choices = {
        "metric": lambda: choose_metric(shared, local, is_at_mode=is_at_mode, has_unit_scale=has_unit_scale),
        "integrator": lambda: choose_integrator(shared + local, has_unit_scale=has_unit_scale),
    }
    for key, choose in open_choices.items():
        if getattr(options, key, None) == AUTO:
            chosen, reason = choose()
            _log.info("kernel.%s: %s chosen: %s", key, chosen, reason)
            options = options.model_copy(update={key: chosen})
    return options


class Lengths(NamedTuple):
    """Numbers of iterations, all powers of two.

    Attributes:
        slice_draws: most iterations of one call of the program, and the size of its buffers.
        segment_draws: most iterations of one segment of the store.
    """

    slice_draws: int
    segment_draws: int


def choose_lengths(
    program: Program, segment_seconds: float, expected_seconds: float, measured_seconds: float
) -> Lengths:
    """Return lengths near their target times, bounded by memory; none of them changes the draws.

    Args:
        program: its kernel determines how many gradients a draw takes, and its target how large a draw is.
        segment_seconds: target time between two commits.
        expected_seconds: of one gradient of all chains of the program, by `program_costs.expected_seconds`. The program depends
            on it, so it must be the same in every run: otherwise a run would not find the programs of the one before.
        measured_seconds: the same, by `audit.seconds_per_gradient`.
    """
    slice_draws = slice_length(program, expected_seconds)
    segment_draws = _length(program, measured_seconds, segment_seconds, SEGMENT_BYTES)
    return Lengths(slice_draws, segment_draws)


def slice_length(program: Program, seconds_per_gradient: float) -> int:
    """Return how many iterations one call should make if a gradient of all chains takes this long."""
    return _length(program, seconds_per_gradient, SLICE_SECONDS, SLICE_BYTES)


def _length(program: Program, seconds_per_gradient: float, aimed_seconds: float, most_bytes: int) -> int:
    """Return the largest power of two within limits on time and bytes and within `SEGMENT_DRAWS`; at least 1."""
    seconds = max(1e-6, seconds_per_gradient * program.kernel.expected_gradients())
    longest = min(aimed_seconds / seconds, most_bytes / draw_bytes(program), SEGMENT_DRAWS)
    return 2 ** max(0, int(math.log2(max(1.0, longest))))


def draw_bytes(program: Program) -> int:
    """Return the bytes of one draw of all reported chains, with its statistics."""
    target = program.target
    coordinates = sum(math.prod(s.shape) for s in jax.tree.leaves(target.position.position_shapes))
    coordinates += sum(map(math.prod, target.integrated.values()))
    # Statistics are float64 on the devices.
    per_chain = coordinates * target.dtype.itemsize + 8 * len(program.kernel.statistics)
    return per_chain * program.num_reported
