"""sample: bring one chain group to the number of draws asked for."""

from __future__ import annotations

import logging
import time

from bayesmesh.data.shards import Shards
from bayesmesh.experiment.stages import StageSpec
from bayesmesh.ledger import Ledger
from bayesmesh.sampling.cache import compile_all, use_cache
from bayesmesh.sampling.identity import chain_identity, check_environment, environment
from bayesmesh.sampling.mesh import configure_jax
from bayesmesh.sampling.plan import make_program
from bayesmesh.sampling.program import GroupKey, Program
from bayesmesh.sampling.segment import Compiled, run_group
from bayesmesh.stages.context import shards_of
from bayesmesh.stages.files import experiment_layout
from bayesmesh.store.files import read_json, write_json
from bayesmesh.store.layout import group_name
from bayesmesh.store.segments import ChainStore

__all__ = ["run"]

_log = logging.getLogger("bayesmesh")


def run(spec: StageSpec, ledger: Ledger, group: int, cores: int | None = None) -> str:
    """Sample; returns a line for the log. What is committed stays, however the job ends."""
    configure_jax(spec.settings("compute"), cores)
    use_cache(spec.results)
    layout, sampling = experiment_layout(spec), spec.config["sampling"]
    shards, data_spec = shards_of(spec)
    identity = chain_identity(spec.config, shards.fingerprint, spec.num_chains)
    planned = make_program(spec, data_spec, segment_draws=int(read_json(layout.audit)["segment_draws"]))
    present = environment(planned.mesh)
    ledger.device = str(present["kind"])
    store = ChainStore(
        layout.group(identity, group), planned.segment_draws, {"identity": identity, "environment": present}
    )
    changed = check_environment(
        store.record["environment"], present, sampling["on_changed_environment"], str(store.folder)
    )
    for difference in changed:
        _log.warning("continuing in a changed environment, no longer bit for bit: %s", difference)
    program = (
        planned if store.segment_draws == planned.segment_draws else make_program(spec, data_spec, store.segment_draws)
    )
    compiled = _load(program, ledger)
    data = _transfer(program, shards, ledger)
    key = GroupKey(sampling["seed"], group * spec.num_chains)
    run_group(program, compiled, key, data, store, sampling["draws"], ledger, f"{spec.experiment} {group_name(group)}")
    _write_manifest(spec, group, store, changed)
    return f"{sampling['draws']} draws of {spec.num_chains} chains, identity {identity}"


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


def _write_manifest(spec: StageSpec, group: int, store: ChainStore, changed: list[str]) -> None:
    """Write the rule's output: small, last, and without any state."""
    sampling, layout = spec.config["sampling"], experiment_layout(spec)
    commits = [c for c in store.commits() if c.phase == "sample"]
    facts = [f for c in commits for f in (*c.earlier, c.facts)]
    write_json(
        layout.sampled(group_name(group)),
        {
            "identity": store.record["identity"],
            "folder": str(store.folder.relative_to(layout.folder)),
            "num_chains": spec.num_chains,
            "num_draws": sampling["draws"],
            "committed_draws": commits[-1].stop,
            "segment_draws": store.segment_draws,
            "environment": store.record["environment"],
            "changed_environment": changed,
            "acceptance": sum(f["acceptance"] * f["count"] for f in facts) / sum(f["count"] for f in facts),
            "divergences": sum(f["divergences"] for f in facts),
            "step_size": commits[-1].facts["step_size"],
        },
    )
