"""compile: lower and compile the programs of a chain group ahead of time, and audit them."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from bayesmesh.analyses.base import Analysis, BoundModel
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.model import Shapes, check_described
from bayesmesh.sampling.checks.pairs import sums_over_pairs
from bayesmesh.sampling.checks.precision import check_precision
from bayesmesh.sampling.checks.rounding import is_compared, lower_likelihood
from bayesmesh.sampling.density.costs import Cost, cost_of_gradient, expected_seconds, is_brief
from bayesmesh.sampling.density.deterministics import choose_deterministics
from bayesmesh.sampling.density.log_density import Arrays
from bayesmesh.sampling.density.mesh import describe_devices, find_devices, warn_of_idle_gpu
from bayesmesh.sampling.density.peers import Peers
from bayesmesh.sampling.density.summaries import Extent, lower_derived
from bayesmesh.sampling.loop.memory import check_disk, check_memory, check_programs
from bayesmesh.sampling.loop.monitor import compile_monitored
from bayesmesh.sampling.program import audit as program_audit
from bayesmesh.sampling.program.chain_group import PROGRAMS, Program
from bayesmesh.sampling.program.compilation import Compilation, compile_programs, use_cache
from bayesmesh.sampling.program.sizes import (
    Lengths,
    ProgramSettings,
    choose_lengths,
    draw_bytes,
    make_program,
    slice_length,
)
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.machine import available_memory
from bayesmesh.store.records.checked import read_checked, write_checked
from bayesmesh.store.slurm_job import job_id
from bayesmesh.workflow.components import in_file_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.checks import check_later, check_reading, check_stop, check_values
from bayesmesh.workflow.stages.inputs import shards_of

_log = logging.getLogger("bayesmesh")


def run(
    job: Job, ledger: Ledger, settings: ProgramSettings, peers: Peers, later: Sequence[Job],
    analyses: Sequence[Analysis],
) -> str:  # fmt: skip
    """Compile all programs into the persistent cache and return a line for the log.

    Args:
        job: specification of the stage.
        ledger: receives times and memory.
        settings: the components, and how they are sampled.
        peers: the processes of the program.
        later: specifications of `assemble`, and of `sample` if it has a stopping rule, which are checked too.
        analyses: the analyses of the experiment, which are checked too.

    Raises:
        ConfigError: the model refuses the data, or reads fields that the data lack; or model or data do not support the stages in `later`;
            or the program grows with the data beyond what can be compiled.
        PeerError: another process failed.
    """
    with peers.together():
        find_devices(job.compute)
        use_cache(job.results)
        shards, data_spec = shards_of(job, settings.model)
        of_data = _warn(read_checked(job.data_layout.sharded).get("source", {}).get("warnings", []))
        model_class, options = settings.model
        with in_file_of(job):
            # The model may refuse its data, held-out rows included.
            model_class.check_all_rows(options, Shards(shards.path).spec(), shards.all_blocks)
            check_precision(data_spec, shards.blocks())
        work = _Work(job, settings, later, analyses, ledger, peers, shards, data_spec)
    made = _compile(work)
    warnings = [*made.warnings, *_warn([*check_described(made.model).warnings])]
    program, compiled = made.program, made.compiled
    with peers.together():
        _check_sizes(work, made)
    _compile_looks(work, made.model)
    seconds = expected = expected_seconds(made.cost, program.mesh)
    if is_measured := "gradients" in compiled:
        with ledger.phase("measure", "one gradient"):
            # The same for all processes, so that they make calls of the same length.
            seconds = program_audit.seconds_per_gradient(program, compiled["gradients"], made.data, peers)
    with peers.together():
        lengths = choose_lengths(program, job.sampling.segment_seconds, expected, seconds)
        cost = {**made.cost._asdict(), "seconds": seconds, "is_measured": is_measured}
        facts = _facts(made, cost, lengths, [*of_data, *warnings])
        if peers.is_first:
            write_checked(job.layout.audit, facts)
    peak = max(each["memory"]["peak"] for each in made.about.values())
    return (
        f"{'' if is_measured else 'at most about '}{seconds * 1e3:.3g} ms per gradient of {program.num_chains} chains, "
        f"peak {peak / 2**20:.0f} MiB per device, segments of {lengths.segment_draws} draws"
    )


class _Work(NamedTuple):
    """The arguments of the job, and the data."""

    job: Job
    settings: ProgramSettings
    later: Sequence[Job]
    analyses: Sequence[Analysis]
    ledger: Ledger
    peers: Peers
    shards: Shards
    data_spec: DataSpec


class _Made(NamedTuple):
    """The programs, with facts about them.

    Attributes:
        model: the model, bound to the data.
        program, compiled: the programs, and their executables by name, with that of gradients unless these are brief.
        data: rows on the devices.
        about: program -> facts.
        cost: of a gradient, see `program_costs.cost_of_gradient`.
        equations: rows -> equations of the gradient: of the log density, at two data sizes, if the model `may_grow`, else of the
            log likelihood of a tile.
        warnings: that they grow, or add up pairs of rows.
    """

    model: Model
    program: Program
    compiled: Mapping[str, Callable[..., Any]]
    data: Arrays
    about: Mapping[str, Any]
    cost: Cost
    equations: Mapping[str, int]
    warnings: Sequence[str]


def _compile(work: _Work) -> _Made:
    """Check model and data, and trace, lower and compile all programs."""
    job, settings, later, analyses, ledger, peers, shards, data_spec = work
    with peers.together():
        latents = check_reading(job, settings.model, data_spec)
        model_class, options = settings.model
        model = model_class(options, data_spec)
        check_later(job, later, analyses, BoundModel(model, data_spec, shards), latents)
        with ledger.phase("condense"):
            sampled = shards.condensed()
        sampled_spec = sampled.spec(job.compute.dtype)
        may_grow = program_audit.may_grow(*settings.model, sampled_spec, latents)
        equations, warnings = _growth(work, sampled_spec) if may_grow else ({}, [])
        probe = make_program(settings, sampled_spec, slice_draws=1, read_blocks=shards.blocks)

        @functools.cache
        def check() -> None:
            check_values(job, settings.model, sampled_spec, sampled, probe.rows_here)

        if not peers.is_alone:
            check()
        warn_of_idle_gpu(probe.mesh, job.compute)
        with in_file_of(job):
            check_memory(probe, available_memory())
        ledger.device = str(describe_devices(probe.mesh)["kind"])
        data = probe.read_data(sampled.read_rows, ledger)
    cost = cost_of_gradient(probe.target, probe.num_chains)
    if model.reads_whole(model.options):
        warnings = [*warnings, *_warn(sums_over_pairs(probe.target, probe.num_chains))]
    num_draws = probe.num_reported * job.sampling.chain_groups * job.sampling.draws
    if not data_spec.dataset_counts:
        warnings = [*warnings, *_warn([*choose_deterministics(model, data_spec, latents, num_draws).warnings])]
    program = probe.with_slice(slice_length(probe, expected_seconds(cost, probe.mesh)))

    is_known = is_brief(cost, program.mesh) and peers.is_alone and not sampled_spec.dataset_counts
    others: dict[str, Callable[[], jax.stages.Traced]]
    others = {} if is_known else {"gradients": functools.partial(program_audit.trace_gradients, program)}
    names = (*PROGRAMS, "adopt") if job.relative else PROGRAMS
    # Wait for each other, so that no process with cached programs exits while another compiles.
    with peers.together():
        later_programs = _lower_derived(work, program, model, latents) if peers.is_alone else ()
        made = compile_programs(program, ledger, names, later=later_programs, meanwhile=check, others=others)
        about = {phase: _describe(made[phase]) for phase in PROGRAMS}
    compiled = {name: each.compiled for name, each in made.items()}
    equations = equations or {str(sampled_spec.num_rows): cost.equations}
    return _Made(model, program, compiled, data, about, cost, equations, warnings)


def _growth(work: _Work, data_spec: DataSpec) -> tuple[Mapping[str, int], list[str]]:
    """Count the equations of the log density at two data sizes; refuse many more for more rows, warn of somewhat more."""
    with work.ledger.phase("trace", "equations at two data sizes"):
        equations = program_audit.growth_of_equations(*work.settings.model, data_spec)
    tile = work.job.compute.row_tile
    with in_file_of(work.job):
        rows = data_spec.num_rows if tile == "auto" else min(tile, data_spec.num_rows)
        growth = program_audit.check_growth(equations, rows, work.job.model.name)
    return equations, _warn([growth] if growth else [])


def _warn(warnings: list[str]) -> list[str]:
    for warning in warnings:
        _log.warning("warning: %s", warning)
    return warnings


def _check_sizes(work: _Work, made: _Made) -> None:
    """Refuse programs beyond the memory, and warn of draws beyond the disk.

    On a cluster, `sample` runs in another job, whose memory follows from the audit.
    """
    with in_file_of(work.job):
        if not job_id(os.environ):
            check_programs(made.program, (each["memory"] for each in made.about.values()), available_memory())
    for sampling in (each.sampling for each in work.later if each.stage == "sample"):
        num_bytes = sampling.draws * sampling.chain_groups * draw_bytes(made.program)
        # Some of them may exist already.
        _warn([text for text in [check_disk(num_bytes, Path(work.job.results), is_certain=False)] if text])


def _compile_looks(work: _Work, model: Model) -> None:
    """Compile the summaries at which a rule that stops sampling looks."""
    data_spec, shards = work.data_spec, work.shards
    for job in (each for each in work.later if each.stage == "sample"):
        names = check_stop(job, model, data_spec)
        with work.peers.together(), work.ledger.phase("compile", "summaries for looks"):
            compile_monitored(model, data_spec, shards, names, job.posterior.probe_rows, job.num_chains)


def _lower_derived(work: _Work, program: Program, model: Model, latents: Shapes) -> Iterator[jax.stages.Lowered]:
    """Yield the programs of `assemble`, unless a rule ends sampling and decides how many draws there are.

    Programs for many datasets are compiled when they run.
    """
    for job in work.later if program.sampling.stop is None and not work.data_spec.dataset_counts else ():
        if job.stage == "assemble":
            num_chains = program.num_reported * job.sampling.chain_groups
            limits = job.posterior.probe_rows, job.posterior.pointwise_mebibytes * 2**20
            extent = Extent(num_chains, job.sampling.draws, *limits)
            yield from lower_derived(model, work.data_spec, work.shards, latents, extent)
            if is_compared(model, program.target.spec):
                yield from lower_likelihood(model, work.data_spec, latents, num_chains * job.sampling.draws)


def _facts(
    made: _Made, gradient: Mapping[str, float | bool], lengths: Lengths, warnings: Sequence[str]
) -> dict[str, object]:
    """Return the facts about the programs, as plain JSON values."""
    program, rows = made.program, made.program.target.layout
    return {
        "equations": {"by_rows": made.equations, "grow_with_data": len(set(made.equations.values())) > 1},
        "gradient": {
            **gradient, "chains": program.num_chains, "per_draw": program.kernel.expected_gradients(),
        },
        "rows": {
            "padded": rows.num_devices * rows.num_tiles * rows.tile_rows, "tile": rows.tile_rows, "tiles": rows.num_tiles,
        },
        "devices": describe_devices(program.mesh),
        **lengths._asdict(),
        "programs": made.about, "warnings": list(warnings),
    }  # fmt: skip


def _describe(made: Compilation) -> dict[str, Any]:
    return {
        "equations": made.num_equations, "trace_seconds": made.trace_seconds, "lower_seconds": made.lower_seconds,
        "compile_seconds": made.compile_seconds, "cache": "warm" if made.is_warm else "cold",
        "memory": program_audit.memory_of(made.compiled),
    }  # fmt: skip
