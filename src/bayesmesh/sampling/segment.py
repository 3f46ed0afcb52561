"""The one loop: segment after segment, from what is committed to what is wanted.

While the devices run a segment the one before it is copied and committed. Host memory holds two segments, however
many draws are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from bayesmesh.ledger import Ledger
from bayesmesh.progress import Progress
from bayesmesh.sampling.program import GroupKey, Program, name_leaves
from bayesmesh.store.segments import ChainStore

__all__ = ["Compiled", "run_group"]

Compiled = Mapping[str, Callable[..., Any]]
"""Phase -> compiled program."""


class _Pending(NamedTuple):
    """A segment that the devices were told to run."""

    phase: str
    start: int
    num_iterations: int
    state: Any
    info: Any
    draws: Mapping[str, jax.Array]


def run_group(
    program: Program,
    compiled: Compiled,
    key: GroupKey,
    data: Any,
    store: ChainStore,
    num_draws: int,
    ledger: Ledger,
    label: str,
) -> None:
    """Bring a chain group to `num_draws` draws, continuing from its last commit.

    Args:
        program: shapes and placement.
        compiled: the four programs.
        key: randomness of the group.
        data: rows on the devices.
        store: the group's store.
        num_draws: draws per chain wanted in all; fewer than are there is fine.
        ledger: gets one row per kind of work.
        label: shown by the progress bar.
    """
    wanted = {"warmup": program.sampling.warmup, "sample": num_draws}
    phase, done, state = _restore(program, compiled, key, data, store, ledger)
    for current in ("warmup", "sample"):
        if current == "sample" and phase == "warmup":
            state, phase, done = compiled["finish"](state), "sample", 0
        if current != phase or done >= wanted[current]:
            continue
        state = _run_phase(
            program, compiled[current], key, data, store, ledger, label, current, done, wanted[current], state
        )


def _restore(
    program: Program, compiled: Compiled, key: GroupKey, data: Any, store: ChainStore, ledger: Ledger
) -> tuple[str, int, Any]:
    """Return phase, iterations done and state: from the last commit, or from the start."""
    commit = store.resume()
    if commit is not None:
        with ledger.phase("resume", f"{commit.phase} {commit.stop}"):
            return commit.phase, commit.stop, program.put_state(commit.phase, store.load_checkpoint(commit))
    with ledger.phase("initialise"):
        return "warmup", 0, jax.block_until_ready(compiled["initialise"](*key.arguments(), data))


def _run_phase(
    program: Program, run: Callable[..., Any], key: GroupKey, data: Any, store: ChainStore, ledger: Ledger, label: str,
    phase: str, done: int, wanted: int, state: Any,
) -> Any:  # fmt: skip
    """Run one phase to its end; commits lag one segment behind the devices."""
    progress = Progress(f"{label} {phase}", wanted, done, unit="iteration" if phase == "warmup" else "draw")
    pending: _Pending | None = None
    gradients, written, write_seconds, begun = 0, 0, 0.0, time.perf_counter()
    while done < wanted or pending is not None:
        following: _Pending | None = None
        if done < wanted:
            count = store.next_count(done, wanted)
            out = run(*key.arguments(), data, state, np.uint32(done), np.int32(count))
            state = out[0]
            following = _Pending(phase, done, count, state, out[1], out[2] if phase == "sample" else {})
            done += count
        if pending is not None:
            jax.block_until_ready(pending.state)
            start = time.perf_counter()
            facts, num_bytes = _commit(store, pending)
            write_seconds += time.perf_counter() - start
            gradients, written = gradients + facts["gradients"], written + num_bytes
            progress.advance(pending.num_iterations, **_shown(facts))
        pending = following
    progress.close()
    ledger.add(phase, time.perf_counter() - begun - write_seconds, gradients=gradients, detail=f"{wanted} iterations")
    ledger.add("write", write_seconds, num_bytes=written, detail=phase)
    return state


def _commit(store: ChainStore, pending: _Pending) -> tuple[dict[str, Any], int]:
    """Copy a finished segment to the host and commit it; returns its facts and the bytes written."""
    num_chains = pending.info.energy.shape[1]
    stats = {}
    for name, value in pending.info._asdict().items():
        host = np.asarray(value)[: pending.num_iterations]
        stats[name] = host if host.ndim > 1 else np.repeat(host[:, None], num_chains, axis=1)
    values: dict[str, Mapping[str, np.ndarray]] = {}
    if pending.phase == "warmup":
        values["warmup_sample_stats"] = stats
    else:
        values["sample_stats"] = stats
        values["posterior"] = {k: np.asarray(v)[: pending.num_iterations] for k, v in pending.draws.items()}
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(pending.state)]
    facts = {
        "count": pending.num_iterations,
        "gradients": int(stats["n_steps"][:, 0].sum()) * num_chains,
        "divergences": int(stats["diverging"].sum()),
        "acceptance": float(stats["acceptance_rate"].mean()),
        "step_size": float(stats["step_size"][-1, 0]),
        "committed_at": time.time(),
    }
    store.commit(
        pending.phase, pending.start, values, dict(zip(name_leaves(pending.state), leaves, strict=True)), facts
    )
    return facts, sum(v.nbytes for group in values.values() for v in group.values()) + sum(v.nbytes for v in leaves)


def _shown(facts: Mapping[str, Any]) -> dict[str, str]:
    return {
        "acceptance": f"{facts['acceptance']:.2f}",
        "step": f"{facts['step_size']:.3g}",
        "divergences": str(facts["divergences"]),
    }
