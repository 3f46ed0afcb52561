"""sample: bring one chain group to the number of draws asked for."""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import StoreError
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.interruption import Interruption
from bayesmesh.running.ledger import Ledger
from bayesmesh.running.process_rank import ProcessRank, check_num_processes
from bayesmesh.sampling.audit import read_lengths
from bayesmesh.sampling.cache import compile_phases, use_cache
from bayesmesh.sampling.distributed import joined
from bayesmesh.sampling.identity import chain_identity, check_environment, environment
from bayesmesh.sampling.mesh import configure_jax, warn_of_idle_gpu
from bayesmesh.sampling.peers import Peers, resume_together
from bayesmesh.sampling.program import PHASES, GroupKey, Program
from bayesmesh.sampling.segment import Loop
from bayesmesh.sampling.sizes import make_program
from bayesmesh.stages.context import shards_of
from bayesmesh.stages.experiment_files import experiment_layout
from bayesmesh.store.layout import group_name, process_folder
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.manifests import hold_to_manifest
from bayesmesh.store.sealed import write_sealed, write_sealed_once
from bayesmesh.store.segments import IDENTITY_REMEDY, ChainStore, segment_draws_of

__all__ = ["run"]

STOPPING = "bayesmesh.stages.stop_rule"

_log = logging.getLogger("bayesmesh")


def run(spec: StageSpec, ledger: Ledger, group: int, cores: int | None = None, rank: ProcessRank | None = None) -> str:
    """Sample; returns a line for the log. What is committed stays, however the job ends.

    Args:
        spec: what to do.
        ledger: gets what it took.
        group: number of the chain group.
        cores: that this process may use.
        rank: of this process; that of a single process if None.

    Raises:
        NotFinished: the job was asked to stop.
        StoreError: what is there is damaged, was made elsewhere, or is being written by another process.
        ConfigError: there are more or fewer processes than the experiment asks for.
        PeerError: another process failed.
    """
    rank = rank or ProcessRank()
    settings, compute = spec.sampling, spec.compute
    check_num_processes(rank, compute.processes, spec.experiment)
    configure_jax(compute, cores)
    # Joined first: until then there is nothing to leave in good order, and JAX may not make an array before.
    with joined(rank) as peers, Interruption(settings.grace_seconds) as interruption, contextlib.ExitStack() as held:
        label = f"{spec.experiment} {group_name(group)}"
        # Several processes leave together, which the loop sees to.
        leave = functools.partial(interruption.check, label) if peers.is_alone else lambda: None
        with peers.together():
            use_cache(spec.results)
            shards, data_spec = shards_of(spec)
            lengths = read_lengths(experiment_layout(spec).audit)
            program = make_program(spec, data_spec, slice_draws=lengths.slice_draws)
            warn_of_idle_gpu(program.mesh, compute)
            identity = chain_identity(spec.config, shards.fingerprint, spec.num_chains)
            folder = process_folder(experiment_layout(spec).group(identity, group), peers.index)
            lock = held.enter_context(WriterLock(folder, give_up=leave))
            store, facts = _open_store(spec, folder, identity, program, lengths.segment_draws, lock)
            hold_to_manifest(experiment_layout(spec).sampled(group_name(group)), store)
            ledger.device = facts["device"]
            compiled = _Programs(program, ledger, peers)
            compiled.load(_phases_left(store, settings.draws))
            leave()
            data = _transfer(program, shards, ledger)
        num_draws = settings.draws
        _check_same(peers, [identity, group, program.slice_draws, store.segment_draws, num_draws])
        key = GroupKey(settings.seed, group * spec.num_chains)
        # Verified before a rule looks at what is there.
        last = resume_together(store, peers)
        rule = _stop_rule(spec, data_spec, shards, store, experiment_layout(spec).looks(identity, group))
        asked = {} if rule is None else {"is_enough": rule.is_enough, "commit_at": rule.look_numbers}
        loop = Loop(
            program, compiled, key, data, store, ledger, interruption, label=label, facts=facts, peers=peers, **asked
        )
        loop.run(num_draws if rule is None else rule.num_draws, last)
        if peers.is_first:
            _write_manifest(spec, group, store, None if rule is None else rule.finish(ledger))
    num_draws = num_draws if rule is None else rule.num_draws
    return f"{num_draws} draws of {spec.num_chains} chains, identity {identity}"


def _stop_rule(spec: StageSpec, data_spec: DataSpec, shards: Shards, store: ChainStore, looks: Path) -> Any:
    """Return what `sampling.stop` asks for, None without it."""
    if spec.sampling.stop is None:
        return None
    # By name, so that its code, and that of the diagnostics, counts where there is a rule (see `Plan.code`).
    return importlib.import_module(STOPPING).make_rule(spec, data_spec, shards, store, looks)


def _check_same(peers: Peers, work: list[Any]) -> None:
    """Hold all processes to the same work: they would wait for each other in different programs otherwise."""
    all_work = peers.exchange(work)
    if any(each != all_work[0] for each in all_work):
        peers.have_parted = True
        there = "; ".join(f"process {i}: {each}" for i, each in enumerate(all_work))
        raise StoreError(
            f"the processes were not started for the same run (identity, group, lengths, draws): {there}",
            "start all of them with the same command, code and folder of results",
        )


def _open_store(
    spec: StageSpec, folder: Path, identity: str, program: Program, segment_draws: int, lock: WriterLock
) -> tuple[ChainStore, dict[str, Any]]:
    """Open a process's store for this environment; returns it and the facts to keep with every commit."""
    present = environment(program.mesh)
    record = experiment_layout(spec).identity_record(identity)
    # Where the record was lost, the chains beside it know the length of their segments.
    stored = None if record.exists() else segment_draws_of(record.parent)
    content = {"segment_draws": stored or segment_draws, "config": spec.config}
    shared = write_sealed_once(record, content, IDENTITY_REMEDY)
    if type(shared.get("segment_draws")) is not int:
        raise StoreError(f"{record}: is damaged: no segment_draws in it", IDENTITY_REMEDY)
    about = {"identity": identity, "environment": present}
    store = ChainStore(folder, shared["segment_draws"], about, lock.check)
    policy = spec.sampling.on_changed_environment
    changed = check_environment(store.record["environment"], present, policy, str(store.folder))
    for difference in changed:
        _log.warning("continuing in a changed environment, no longer bit for bit: %s", difference)
    return store, {"device": str(present["kind"]), "host": socket.gethostname(), "changed_environment": changed}


def _phases_left(store: ChainStore, num_draws: int) -> Sequence[str]:
    """Return the phases that a run will go through that continues from the last commit to `num_draws`."""
    commits = store.commits()
    if not commits:
        return PHASES
    last = commits[-1]
    return () if last.phase == "sample" and last.stop >= num_draws else PHASES[PHASES.index(last.phase) :]


class _Programs(dict[str, Any]):
    """Phase -> compiled program, from the persistent cache; one that was not loaded is when it is asked for."""

    def __init__(self, program: Program, ledger: Ledger, peers: Peers) -> None:
        super().__init__()
        self._program, self._ledger, self._peers = program, ledger, peers

    def load(self, phases: Sequence[str]) -> None:
        """Load programs; a miss is reported where the compile stage has made them all."""
        for phase, compilation in compile_phases(self._program, self._ledger, phases).items():
            self[phase] = compilation.compiled
            if not compilation.is_warm and self._peers.is_alone:
                _log.warning(
                    "cache miss: the program '%s' was compiled again; was it compiled on another device?", phase
                )

    def __missing__(self, phase: str) -> Any:
        # Several processes go on from the last commit of all, which may lie before this one's.
        self.load([phase])
        return self[phase]


def _transfer(program: Program, shards: Shards, ledger: Ledger) -> object:
    start = time.perf_counter()
    data = program.put_data(shards.read_rows(*program.rows_here))
    ledger.add("transfer", time.perf_counter() - start, num_bytes=sum(v.nbytes for v in data.values()))
    return data


def _write_manifest(spec: StageSpec, group: int, store: ChainStore, stop: Mapping[str, Any] | None) -> None:
    """Write the rule's output: small, last, and without any state."""
    layout = experiment_layout(spec)
    commits = store.commits()
    facts = [f for c in commits if c.phase == "sample" for f in c.all_facts]
    write_sealed(
        layout.sampled(group_name(group)),
        {
            "identity": store.record["identity"],
            "folder": str(store.folder.relative_to(layout.folder)),
            "num_chains": spec.num_chains,
            "num_processes": spec.compute.processes,
            "num_draws": spec.sampling.draws if stop is None else stop["num_draws"],
            "committed_draws": commits[-1].stop,
            "segment_draws": store.segment_draws,
            "environment": store.record["environment"],
            "changed_environment": sorted(
                {d for c in commits for f in c.all_facts for d in f.get("changed_environment", ())}
            ),
            "acceptance": sum(f["acceptance"] * f["count"] for f in facts) / sum(f["count"] for f in facts),
            "divergences": sum(f["divergences"] for f in facts),
            "step_size": commits[-1].facts["step_size"],
            "stop": stop,
        },
    )
