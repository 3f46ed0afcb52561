"""writing: measure the cost of committing draws, and that memory does not grow with the number of draws.

The baseline is the same loop with a store that writes nothing. Both continue the experiment's chains from their last
checkpoint, in turns, A B A B, so that load on the machine affects both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bayesmesh.errors import ConfigError
from bayesmesh.sampling.density.mesh import configure_jax
from bayesmesh.sampling.loop.identity import chain_identity
from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.program.audit import read_lengths
from bayesmesh.sampling.program.compilation import compile_programs, use_cache
from bayesmesh.sampling.program.sizes import make_program
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.chains.markers import Commit, Facts
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.records.checked import read_checked
from bayesmesh.workflow.code import component_code
from bayesmesh.workflow.components import program_settings
from bayesmesh.workflow.jobs import make_job
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.stages.inputs import shards_of
from bayesmesh_reproduction.benchmarks.worker import memory_mib


class _Unwritten(ChainStore):
    """Accepts commits and discards them."""

    def commit(
        self, phase: str, start: int, values: Mapping[str, Mapping[str, np.ndarray]],
        checkpoint: Mapping[str, np.ndarray], facts: Facts, *, count: int | None = None, is_final: bool = True,
    ) -> Commit:  # fmt: skip
        """Count the iterations."""
        stop = start + self._count(phase, start, values, count)
        commit = Commit(phase, start - start % self.segment_draws, stop, {}, "", facts)
        self._commits.append(commit)
        return commit


def measure_writing(plan: Plan, name: str, *, draws: int, rounds: int, cores: int | None = None) -> dict[str, object]:
    """Measure throughput and memory with the chains of a sampled experiment.

    Args:
        plan: the configuration.
        name: name of the experiment.
        draws: draws per turn.
        rounds: turns of each contender.
        cores: cores to use; all by default.

    Returns:
        A row of ``results/benchmarks/writing.csv``. ``throughput_ratio``: draws per second with writing over those
        without, median over the rounds; ``memory_ratio``: resident memory after ten times as many draws, over that before.

    Raises:
        ConfigError: there are no chains to continue.
    """
    job = make_job("sample", name, plan.experiments[name], plan.results)
    configure_jax(job.compute, cores)
    use_cache(job.results)
    settings = program_settings(job)
    layout, shards = plan.layout(name), shards_of(job, settings.model)[0].condensed()
    group = layout.group(chain_identity(job.config, component_code(job), shards.fingerprint, job.num_chains), 0)
    if not (group / "store.json").is_file():
        raise ConfigError(f"{group}: no chains to continue", f"sample the experiment first: snakemake --cores 2 {name}")
    slice_draws = read_lengths(layout.audit).slice_draws
    program = make_program(settings, shards.spec(job.compute.dtype), slice_draws=slice_draws)
    compiled = {k: c.compiled for k, c in compile_programs(program, Ledger(Path("unused"), "benchmark")).items()}
    data, key = program.put_data(shards.read_rows(0, shards.num_rows)), GroupKey(job.sampling.seed, 0)
    memory: dict[int, float] = {}

    def turn(kind: type[ChainStore], count: int, looks: tuple[int, ...] = ()) -> float:
        """Continue a copy of the chains by `count` draws and return draws per second."""
        with tempfile.TemporaryDirectory(dir=layout.folder) as folder, Interruption(0) as interruption:
            # Continue a copy, so that the experiment's own chains do not change. Hard links suffice, because no file of a
            # store is ever changed in place.
            skipped = shutil.ignore_patterns(".*", LOCK_NAME)
            copy = shutil.copytree(group, Path(folder) / group.name, copy_function=os.link, ignore=skipped)
            store = kind(copy, 1, read_checked(group / "store.json"))
            begin = store.commits()[-1].stop

            def look(phase: str, done: int) -> None:
                for at in looks:
                    if phase == "sample" and done - begin >= at and at not in memory:
                        memory[at] = memory_mib("VmRSS")

            own = Ledger(Path("unused"), "turn")
            loop = Loop(program, compiled, key, data, store, own, interruption, label=name, facts={}, watch=look)
            loop.run(begin + count, store.begin_writing())
            return count / next(row["seconds"] for row in own.rows if row["phase"] == "sample")

    turn(ChainStore, draws)
    pairs = [(turn(ChainStore, draws), turn(_Unwritten, draws)) for _ in range(rounds)]
    turn(ChainStore, 10 * draws, looks=(draws, 10 * draws))
    written, unwritten = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "experiment": name,
        "device": program.mesh.devices.flat[0].device_kind,
        "draws": draws,
        "rounds": rounds,
        "draws_per_s_written": written,
        "draws_per_s_unwritten": unwritten,
        "throughput_ratio": statistics.median(a / b for a, b in pairs),
        "memory_after_first_mib": memory[draws],
        "memory_after_last_mib": memory[10 * draws],
        "memory_ratio": memory[10 * draws] / memory[draws],
    }
