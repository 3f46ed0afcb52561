"""sample: extend one chain group to the requested number of draws."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.config.versions import DRAWS
from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.errors import StoreError
from bayesmesh.sampling.density.mesh import warn_of_idle_gpu
from bayesmesh.sampling.density.peers import Peers, resume_together
from bayesmesh.sampling.loop.identity import chain_identity, check_environment, environment, explain_new_chains
from bayesmesh.sampling.loop.interruption import Interruption
from bayesmesh.sampling.loop.memory import check_disk
from bayesmesh.sampling.loop.segment import Loop
from bayesmesh.sampling.program.audit import read_lengths
from bayesmesh.sampling.program.chain_group import PROGRAMS, Program
from bayesmesh.sampling.program.compilation import compile_programs, use_cache
from bayesmesh.sampling.program.datasets import DatasetPrograms
from bayesmesh.sampling.program.sizes import Lengths, ProgramSettings, draw_bytes, make_program
from bayesmesh.sampling.program.starts import NoFiniteStart, explain_start, training_row
from bayesmesh.sampling.program.values import GroupKey
from bayesmesh.store.chains.manifests import StopRecord
from bayesmesh.store.chains.markers import Commit, Facts
from bayesmesh.store.chains.segments import IDENTITY_REMEDY, ChainStore, segment_draws_of
from bayesmesh.store.layout import group_name, process_folder
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.records.checked import write_checked, write_checked_once
from bayesmesh.workflow.code import component_code
from bayesmesh.workflow.components import Component, in_file_of
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.stages.inputs import shards_of
from bayesmesh.workflow.stages.relative import Misled, Relative, check_continued, read_relative

_log = logging.getLogger("bayesmesh")


def run(job: Job, ledger: Ledger, settings: ProgramSettings, peers: Peers, group: int) -> str:
    """Sample and return a line for the log. Committed draws stay, however the job ends.

    Args:
        job: specification of the stage.
        ledger: receives times and memory.
        settings: the components, and how they are sampled.
        peers: the processes of the program, which have joined: before, there is nothing to finish on a stop request.
        group: number of the chain group.

    Raises:
        NotFinished: the job was asked to stop.
        StoreError: the store is damaged, was made in another environment, or another process is writing it.
        ConfigError: a chain has no finite start.
        PeerError: another process failed.
    """
    with Interruption(job.sampling.grace_seconds) as interruption:
        with peers.together():
            use_cache(job.results)
            shards, data_spec = shards_of(job, settings.model)
            lengths = read_lengths(job.layout.audit)
            sampled = shards.condensed()
            program = make_program(settings, sampled.spec(job.compute.dtype), lengths.slice_draws, shards.blocks)
            warn_of_idle_gpu(program.mesh, job.compute)
            relative = read_relative(job, program)
        prepared = _Prepared(shards, sampled, data_spec, lengths, program)
        attempt = functools.partial(_sample, job, ledger, settings.model, peers, group, interruption, prepared)
        try:
            return attempt(relative)
        except Misled as misled:
            _log.info("the chains of '%s' are not continued: %s", job.relative, misled)
            return attempt(None)


class _Prepared(NamedTuple):
    """The rows and the program of a chain group, which every attempt to sample uses.

    Attributes:
        shards, data_spec: rows of the experiment, and their description.
        sampled: rows that the program reads, which may be condensed.
        lengths: numbers of draws of slices and segments.
        program: its program.
    """

    shards: Shards
    sampled: Shards
    data_spec: DataSpec
    lengths: Lengths
    program: Program


def _sample(
    job: Job, ledger: Ledger, model: Component, peers: Peers, group: int, interruption: Interruption, prepared: _Prepared,
    relative: Relative | None,
) -> str:  # fmt: skip
    """Sample chains that continue a relative, or that start by themselves, and return a line for the log.

    Raises:
        Misled: those that continue the relative do not agree.
    """
    sampling, (shards, sampled, data_spec, lengths, program) = job.sampling, prepared
    label = f"{job.experiment} {group_name(group)}"
    # Several processes stop together, which the loop coordinates.
    leave = functools.partial(interruption.check, label) if peers.is_alone else lambda: None
    with contextlib.ExitStack() as held:
        with peers.together():
            code, data, other = component_code(job), shards.fingerprint, relative.identity if relative else ""
            identity = ledger.identity = chain_identity(job.config, code, data, job.num_chains, other)
            made_from = {"config": job.config, "data": data, "draws": DRAWS, "relative": other}
            if anew := explain_new_chains(job.layout, identity, made_from):
                _log.info("%s", anew)
            folder = process_folder(job.layout.group(identity, group), peers.index)
            lock = held.enter_context(WriterLock(folder, give_up=leave))
            content = {"segment_draws": lengths.segment_draws, **made_from}
            store, facts = _open_store(job, folder, identity, program, content, lock)
            store.reconcile_manifest(job.layout.sampled(group_name(group)))
            ledger.device = facts["device"]
            compiled = _Programs(program, ledger, peers)
            done = max((commit.num_draws for commit in store.commits()), default=0)
            names = PROGRAMS if not store.commits() else ("segment",) if done < sampling.draws else ()
            compiled.load((*names, "adopt") if relative and names == PROGRAMS else names)
            leave()
            rows = program.read_data(sampled.read_rows, ledger)
        _check_same(peers, [identity, group, program.slice_draws, store.segment_draws, sampling.draws])
        # With many datasets, a group has the chains of all of them.
        key = GroupKey(sampling.seed, group * program.num_chains)
        # Verify before the rule looks at existing draws.
        last = resume_together(store, peers)
        with peers.together(), in_file_of(job):
            left = max(0, sampling.draws - (last.num_draws if last is not None else 0))
            if warning := check_disk(left * draw_bytes(program), job.layout.folder, is_certain=sampling.stop is None):
                _log.warning("warning: %s", warning)
        rule = _stop_rule(job, model, data_spec, shards, store, job.layout.looks(identity, group))
        asked: dict[str, Any] = {} if rule is None else {"should_stop": rule.is_enough, "commit_at": rule.look_numbers}
        asked |= {"label": label, "facts": facts, "peers": peers}
        if relative is not None:
            check = functools.partial(check_continued, store, relative.step_size)
            asked |= {"relative": relative.state, "after_warmup": check}
        loop = Loop(program, compiled, key, rows, store, ledger, interruption, **asked)
        with _explaining_starts(job, program, key, sampled):
            loop.run(sampling.draws if rule is None else rule.num_draws, last)
        num_draws = sampling.draws if rule is None else rule.num_draws
        _state_time(ledger, store.commits(), num_draws)
        if peers.is_first:
            _write_manifest(job, group, program, store, num_draws, None if rule is None else rule.finish(ledger))
    return f"{num_draws} draws of {job.num_chains} chains, identity {identity}"


@contextlib.contextmanager
def _explaining_starts(job: Job, program: Program, key: GroupKey, shards: Shards) -> Iterator[None]:
    """Say why no start was finite, and name the experiment's file."""
    try:
        yield
    except NoFiniteStart as failed:
        with in_file_of(job):
            if isinstance(program, DatasetPrograms):
                alone = program.alone(key, failed.chains, shards.read_rows)
                raise explain_start(*alone, lambda row: f"{training_row(row)} of its dataset") from None
            order = shards.source_rows()
            raise explain_start(
                program, key, failed.chains, shards.read_rows, lambda row: training_row(int(order[row]))
            ) from None


def _stop_rule(job: Job, model: Component, data_spec: DataSpec, shards: Shards, store: ChainStore, looks: Path) -> Any:
    """Return the stopping rule of `sampling.stop`, None without one."""
    if job.sampling.stop is None:
        return None
    # The diagnostics take a while to import, and most experiments have no rule.
    from bayesmesh.workflow.stages.stop_rule import make_rule

    model_class, options = model
    return make_rule(job, model_class(options, data_spec), data_spec, shards, store, looks)


def _check_same(peers: Peers, work: list[object]) -> None:
    """Check that all processes do the same work; otherwise they would wait for each other in different programs."""
    all_work = peers.exchange(work)
    if any(each != all_work[0] for each in all_work):
        peers.have_parted = True
        there = "; ".join(f"process {i}: {each}" for i, each in enumerate(all_work))
        message = f"the processes were not started for the same run (identity, group, lengths, draws): {there}"
        raise StoreError(message, "start all of them with the same command, code and results folder")


def _open_store(
    job: Job, folder: Path, identity: str, program: Program, content: dict[str, Any], lock: WriterLock
) -> tuple[ChainStore, Facts]:
    """Open a process's store in this environment; return it and the facts to store with every commit.

    `content` is the record of the identity, unless it exists.
    """
    present = environment(program.mesh, program.target.model.packages)
    record = job.layout.identity_record(identity)
    # If the record is lost, the existing chains determine the length of segments.
    if not record.exists() and (stored := segment_draws_of(record.parent)) is not None:
        content = {**content, "segment_draws": stored}
    shared = write_checked_once(record, content, IDENTITY_REMEDY)
    if type(shared.get("segment_draws")) is not int:
        raise StoreError(f"{record}: is damaged: segment_draws is missing", IDENTITY_REMEDY)
    about = {"identity": identity, "environment": present}
    store = ChainStore(folder, shared["segment_draws"], about, lock.check)
    policy = job.sampling.on_changed_environment
    changed = check_environment(store.record["environment"], present, policy, str(store.folder))
    for difference in changed:
        _log.warning("warning: continuing in a changed environment, not bitwise reproducible: %s", difference)
    return store, {"device": str(present["kind"]), "host": socket.gethostname(), "changed_environment": changed}


class _Programs(dict[str, Callable[..., Any]]):
    """Name -> compiled program, from the persistent cache, loaded on first use."""

    def __init__(self, program: Program, ledger: Ledger, peers: Peers) -> None:
        super().__init__()
        self._program, self._ledger, self._peers = program, ledger, peers

    def load(self, names: Sequence[str]) -> None:
        """Load programs; warn about a cache miss if the compile stage has made them all."""
        missing = [name for name in names if name not in self]
        for name, made in compile_programs(self._program, self._ledger, missing).items():
            self[name] = made.compiled
            if not made.is_warm and self._peers.is_alone:
                _log.warning(
                    "the program '%s' was compiled again: the cache keeps no program that calls Python, and none for another device",
                    name,
                )

    def __missing__(self, name: str) -> Callable[..., Any]:
        # Several processes continue from the last common commit, which may precede this one's last.
        self.load([name])
        return self[name]


def _state_time(ledger: Ledger, commits: Sequence[Commit], num_draws: int) -> None:
    """Record the time of all iterations that the draws come from, even if earlier attempts made and committed them.

    The sum is that of an undisturbed run: what a killed attempt lost is not in it, nor are draws beyond `num_draws`.
    """
    for phase, limit in (("warmup", math.inf), ("sample", num_draws)):
        facts = [f for c in commits if c.phase == phase for f in c.all_facts if f["first_new"] < limit]
        used = [(f, min(1.0, (limit - f["first_new"]) / f["count"])) for f in facts]
        if used:
            gradients = round(sum(f["gradients"] * share for f, share in used))
            detail = f"{round(sum(f['count'] * share for f, share in used))} iterations"
            ledger.restate(phase, sum(f["seconds"] * share for f, share in used), gradients=gradients, detail=detail)


def _write_manifest(
    job: Job, group: int, program: Program, store: ChainStore, num_draws: int, stop: StopRecord | None
) -> None:
    """Write the output of the rule: small, last, and without state."""
    commits = store.commits()
    facts = [f for c in commits if c.phase == "sample" for f in c.all_facts]
    content = {
        "identity": store.record["identity"],
        "folder": str(store.folder.relative_to(job.layout.folder)),
        "num_chains": program.num_reported,
        "statistics": {name: statistic._asdict() for name, statistic in program.kernel.statistics.items()},
        "kernel": job.config["kernel"]["name"],
        "is_adjusted": program.kernel.is_adjusted,
        "is_population": program.kernel.are_population(program.num_chains),
        "num_processes": job.compute.processes,
        "num_draws": num_draws,
        "committed_draws": commits[-1].stop,
        "segment_draws": store.segment_draws,
        "environment": store.record["environment"],
        "changed_environment": sorted({d for c in commits for f in c.all_facts for d in f.get("changed_environment", ())}),
        **_statistics(facts),
        "stop": stop,
    }  # fmt: skip
    write_checked(job.layout.sampled(group_name(group)), content)


def _statistics(facts: Sequence[Facts]) -> dict[str, int | float]:
    """Summarise over all commits the statistics that the kernel records."""
    found: dict[str, int | float] = {}
    if all("acceptance" in f for f in facts):
        found["acceptance"] = sum(f["acceptance"] * f["count"] for f in facts) / sum(f["count"] for f in facts)
    if all("divergences" in f for f in facts):
        found["divergences"] = sum(f["divergences"] for f in facts)
    return found | ({"step_size": facts[-1]["step_size"]} if "step_size" in facts[-1] else {})
