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
from typing import NamedTuple

import numpy as np

from bayesmesh.data.shards import open_shards
from bayesmesh.errors import ConfigError
from bayesmesh.planning.plan import Plan
from bayesmesh.planning.specs import make_spec
from bayesmesh.running.interruption import Interruption
from bayesmesh.running.ledger import Ledger
from bayesmesh.sampling.audit import read_lengths
from bayesmesh.sampling.cache import compile_programs, use_cache
from bayesmesh.sampling.chain_identity import chain_identity
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.sampling.program import GroupKey
from bayesmesh.sampling.segment import Loop
from bayesmesh.sampling.sizes import make_program
from bayesmesh.store.lock import LOCK_NAME
from bayesmesh.store.markers import Commit, Facts
from bayesmesh.store.sealed import read_sealed
from bayesmesh.store.segments import ChainStore

__all__ = ["Writing", "measure_writing"]


class Writing(NamedTuple):
    """The measurement; one row of ``results/benchmarks/writing.csv``.

    Attributes:
        throughput_ratio: draws per second with writing over those without, median over the rounds.
        memory_ratio: resident memory after ten times as many draws, over that before.
    """

    experiment: str
    device: str
    draws: int
    rounds: int
    draws_per_s_written: float
    draws_per_s_unwritten: float
    throughput_ratio: float
    memory_after_first_mib: float
    memory_after_last_mib: float
    memory_ratio: float


class _Unwritten(ChainStore):
    """Accepts commits and discards them."""

    def commit(
        self,
        phase: str,
        start: int,
        values: Mapping[str, Mapping[str, np.ndarray]],
        checkpoint: Mapping[str, np.ndarray],
        facts: Facts,
        *,
        count: int | None = None,
        is_final: bool = True,
    ) -> Commit:
        stop = start + self._count(phase, start, values, count)
        commit = Commit(phase, start - start % self.segment_draws, stop, {}, "", facts)
        self._commits.append(commit)
        return commit


def measure_writing(plan: Plan, name: str, *, draws: int, rounds: int, cores: int | None = None) -> Writing:
    """Measure throughput and memory with the chains of a sampled experiment.

    Args:
        plan: the configuration.
        name: name of the experiment.
        draws: draws per turn.
        rounds: turns of each contender.
        cores: cores to use; all by default.

    Raises:
        ConfigError: there are no chains to continue.
    """
    spec = make_spec("sample", name, plan.experiment(name), plan.results)
    configure_jax(spec.settings("compute"), cores)
    use_cache(spec.results)
    layout, shards = plan.layout(name), open_shards(plan.data_layout(name).shards)
    group = layout.group(chain_identity(spec.config, shards.fingerprint, spec.num_chains), 0)
    if not (group / "store.json").is_file():
        raise ConfigError(f"{group}: no chains to continue", f"sample the experiment first: snakemake --cores 2 {name}")
    data_spec = shards.spec(spec.config["compute"]["dtype"])
    program = make_program(spec, data_spec, slice_draws=read_lengths(layout.audit).slice_draws)
    ledger = Ledger(Path("unused"), "benchmark")
    compiled = {phase: c.compiled for phase, c in compile_programs(program, ledger).items()}
    data = program.put_data(shards.read_rows(0, shards.num_rows))
    key = GroupKey(spec.config["sampling"]["seed"], 0)
    memory: dict[int, float] = {}

    def turn(kind: type[ChainStore], count: int, looks: tuple[int, ...] = ()) -> float:
        """Continue a copy of the chains by `count` draws and return draws per second."""
        with tempfile.TemporaryDirectory(dir=layout.folder) as folder, Interruption(0) as interruption:
            store = kind(_copy(group, Path(folder)), 1, read_sealed(group / "store.json"))
            begin = store.commits()[-1].stop

            def look(phase: str, done: int) -> None:
                for at in looks:
                    if phase == "sample" and done - begin >= at and at not in memory:
                        memory[at] = _resident_mib()

            own = Ledger(Path("unused"), "turn")
            loop = Loop(program, compiled, key, data, store, own, interruption, label=name, facts={}, watch=look)
            loop.run(begin + count, store.begin_writing())
            return count / next(row["seconds"] for row in own.rows if row["phase"] == "sample")

    turn(ChainStore, draws)
    pairs = [(turn(ChainStore, draws), turn(_Unwritten, draws)) for _ in range(rounds)]
    turn(ChainStore, 10 * draws, looks=(draws, 10 * draws))
    written, unwritten = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    first, last = memory[draws], memory[10 * draws]
    device = program.mesh.devices.flat[0].device_kind
    return Writing(
        name, device, draws, rounds, written, unwritten, ratio, first, last, last / first
    )  # fmt: skip


def _copy(group: Path, folder: Path) -> Path:
    """Copy a chain group, so that the experiment's own chains do not change."""
    target = folder / group.name
    # Hard links suffice, because no file of a store is ever changed in place.
    shutil.copytree(group, target, copy_function=os.link, ignore=shutil.ignore_patterns(".*", LOCK_NAME))
    return target


def _resident_mib() -> float:
    """Resident memory of this process now, in MiB."""
    fields = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return float(next(line.split()[1] for line in fields if line.startswith("VmRSS"))) / 1024
