"""sample: bring one chain group to the number of draws asked for."""

from __future__ import annotations

import importlib
import logging
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bayesmesh.data.base import DataSpec
from bayesmesh.data.shards import Shards
from bayesmesh.experiment.stages import StageSpec
from bayesmesh.ledger import Ledger
from bayesmesh.sampling.cache import compile_all, use_cache
from bayesmesh.sampling.identity import chain_identity, check_environment, environment
from bayesmesh.sampling.interruption import Interruption
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.sampling.plan import make_program
from bayesmesh.sampling.program import GroupKey, Program
from bayesmesh.sampling.segment import Compiled, Loop
from bayesmesh.stages.context import shards_of
from bayesmesh.stages.files import experiment_layout
from bayesmesh.store.files import read_json, write_json, write_json_once
from bayesmesh.store.layout import ExperimentLayout, group_name
from bayesmesh.store.lock import WriterLock
from bayesmesh.store.segments import ChainStore

__all__ = ["run"]

STOPPING = "bayesmesh.stages.stopping"

_log = logging.getLogger("bayesmesh")


def run(spec: StageSpec, ledger: Ledger, group: int, cores: int | None = None) -> str:
    """Sample; returns a line for the log. What is committed stays, however the job ends.

    Raises:
        NotFinished: the job was asked to stop.
        StoreError: what is there is damaged, was made elsewhere, or is being written by another process.
    """
    settings = spec.settings("sampling")
    with Interruption(settings.grace_seconds) as interruption:
        configure_jax(spec.settings("compute"), cores)
        use_cache(spec.results)
        layout = experiment_layout(spec)
        shards, data_spec = shards_of(spec)
        identity = chain_identity(spec.config, shards.fingerprint, spec.num_chains)
        audit = read_json(layout.audit)
        program = make_program(spec, data_spec, slice_draws=int(audit["slice_draws"]))
        with WriterLock(layout.group(identity, group)) as lock:
            store, facts = _open_store(spec, layout, identity, group, program, int(audit["segment_draws"]), lock)
            ledger.device = facts["device"]
            compiled = _load(program, ledger)
            data = _transfer(program, shards, ledger)
            key = GroupKey(settings.seed, group * spec.num_chains)
            label = f"{spec.experiment} {group_name(group)}"
            rule = _stop_rule(spec, data_spec, shards, store, layout.looks(identity, group))
            asked = {} if rule is None else {"is_enough": rule.is_enough, "commit_at": rule.look_numbers}
            loop = Loop(program, compiled, key, data, store, ledger, interruption, label=label, facts=facts, **asked)
            loop.run(settings.draws if rule is None else rule.num_draws)
            _write_manifest(spec, group, store, None if rule is None else rule.finish(ledger))
    num_draws = settings.draws if rule is None else rule.num_draws
    return f"{num_draws} draws of {spec.num_chains} chains, identity {identity}"


def _stop_rule(spec: StageSpec, data_spec: DataSpec, shards: Shards, store: ChainStore, looks: Path) -> Any:
    """Return what `sampling.stop` asks for, None without it."""
    if spec.config["sampling"].get("stop") is None:
        return None
    # By name, so that its code, and that of the diagnostics, counts where there is a rule (see `Plan.code`).
    return importlib.import_module(STOPPING).make_rule(spec, data_spec, shards, store, looks)


def _open_store(
    spec: StageSpec, layout: ExperimentLayout, identity: str, group: int, program: Program, segment_draws: int,
    lock: WriterLock,
) -> tuple[ChainStore, dict[str, Any]]:  # fmt: skip
    """Open the group's store for this environment; returns it and the facts to keep with every commit."""
    present = environment(program.mesh)
    record = layout.identity_record(identity)
    shared = write_json_once(record, {"segment_draws": segment_draws, "config": spec.config})
    store = ChainStore(
        layout.group(identity, group),
        int(shared["segment_draws"]),
        {"identity": identity, "environment": present},
        lock.check,
    )
    policy = spec.config["sampling"]["on_changed_environment"]
    changed = check_environment(store.record["environment"], present, policy, str(store.folder))
    for difference in changed:
        _log.warning("continuing in a changed environment, no longer bit for bit: %s", difference)
    return store, {"device": str(present["kind"]), "host": socket.gethostname(), "changed_environment": changed}


def _load(program: Program, ledger: Ledger) -> Compiled:
    """Take the programs from the persistent cache; a miss is reported, since the compile stage made them all."""
    found = compile_all(program, ledger)
    for phase, compilation in found.items():
        if not compilation.is_warm:
            _log.warning("cache miss: the program '%s' was compiled again; was it compiled on another device?", phase)
    return {phase: compilation.compiled for phase, compilation in found.items()}


def _transfer(program: Program, shards: Shards, ledger: Ledger) -> object:
    start = time.perf_counter()
    data = program.put_data(shards.read_rows(0, shards.num_rows))
    ledger.add("transfer", time.perf_counter() - start, num_bytes=sum(v.nbytes for v in data.values()))
    return data


def _write_manifest(spec: StageSpec, group: int, store: ChainStore, stop: Mapping[str, Any] | None) -> None:
    """Write the rule's output: small, last, and without any state."""
    sampling, layout = spec.config["sampling"], experiment_layout(spec)
    commits = store.commits()
    facts = [f for c in commits if c.phase == "sample" for f in c.all_facts]
    write_json(
        layout.sampled(group_name(group)),
        {
            "identity": store.record["identity"],
            "folder": str(store.folder.relative_to(layout.folder)),
            "num_chains": spec.num_chains,
            "num_draws": sampling["draws"] if stop is None else stop["num_draws"],
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
