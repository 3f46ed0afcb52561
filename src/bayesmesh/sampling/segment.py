"""The one loop: slice after slice, segment after segment, from what is committed to what is wanted.

A slice is one call of the compiled program, seconds long; a segment is what is committed at once, a minute. While the
devices run a slice the one before it is copied, and while they go on a thread writes the segment before. Host memory
holds two segments, however many draws are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np

from bayesmesh.errors import NotFinished
from bayesmesh.ledger import Ledger
from bayesmesh.progress import Progress
from bayesmesh.sampling.interruption import GraceOver, Interruption
from bayesmesh.sampling.program import GroupKey, Program, name_leaves
from bayesmesh.store.segments import ChainStore, Commit

__all__ = ["Compiled", "Loop"]

Compiled = Mapping[str, Callable[..., Any]]
"""Phase -> compiled program."""


class _Slice(NamedTuple):
    """Iterations that the devices were told to make."""

    start: int
    num_iterations: int
    state: Any
    info: Any
    draws: Mapping[str, jax.Array]


class Loop:
    """Brings a chain group to a number of draws, continuing from its last commit.

    Args:
        program: shapes and placement.
        compiled: the four programs.
        key: randomness of the group.
        data: rows on the devices.
        store: the group's store, whose lock the caller holds.
        ledger: gets one row per kind of work.
        interruption: says whether to stop.
        label: shown by the progress bar.
        facts: kept with every commit of this run, such as the device.
        is_enough: asked after every commit of draws, in the thread that writes; True ends the run.
        commit_at: numbers of draws that are committed though a segment is not whole, so that `is_enough` sees them.
        watch: called after every slice with the phase and the iterations done.
    """

    def __init__(
        self,
        program: Program,
        compiled: Compiled,
        key: GroupKey,
        data: Any,
        store: ChainStore,
        ledger: Ledger,
        interruption: Interruption,
        *,
        label: str,
        facts: Mapping[str, Any],
        is_enough: Callable[[Commit], bool] = lambda commit: False,
        commit_at: Collection[int] = (),
        watch: Callable[[str, int], None] = lambda phase, done: None,
    ) -> None:
        self.program, self.compiled, self.store = program, compiled, store
        self._arguments = (*key.arguments(), data)
        self._ledger, self._interruption, self._label = ledger, interruption, label
        self._facts, self._is_enough, self._watch = facts, is_enough, watch
        self._commit_at = frozenset(commit_at)

    def run(self, num_draws: int) -> None:
        """Make and commit draws until there are `num_draws` of them, or enough; fewer than are there is fine.

        Raises:
            NotFinished: the job was asked to stop; what was done is committed.
        """
        wanted = {"warmup": self.program.sampling.warmup, "sample": num_draws}
        phase, done, state = self._restore()
        for current in ("warmup", "sample"):
            if current == "sample" and phase == "warmup":
                state, phase, done = self.compiled["finish"](state), "sample", 0
            if current == phase and done < wanted[current]:
                state = self._run_phase(current, done, wanted[current], state)
        self.store.end_writing()

    def _restore(self) -> tuple[str, int, Any]:
        """Return phase, iterations done and state: from the last commit, or from the start."""
        commit = self.store.begin_writing()
        if commit is not None:
            with self._ledger.phase("resume", f"{commit.phase} {commit.stop}"):
                leaves = self.store.load_checkpoint(commit)
                return commit.phase, commit.stop, self.program.put_state(commit.phase, leaves)
        with self._ledger.phase("initialise"):
            state = self.compiled["initialise"](*self._arguments)
            try:
                self._interruption.wait(state)
            except GraceOver:
                raise self._not_finished("warmup", 0, is_abrupt=True) from None
            return "warmup", 0, state

    def _run_phase(self, phase: str, done: int, wanted: int, state: Any) -> Any:
        """Run one phase to its end; copying lags one slice behind the devices, writing one segment."""
        unit = "iteration" if phase == "warmup" else "draw"
        begun, writer = time.perf_counter(), _Writer(self.store, self._is_enough)
        with Progress(f"{self._label} {phase}", wanted, done, unit=unit) as progress, writer:
            segment, running = _Segment(phase, done, self._facts), None
            while done < wanted or running is not None:
                following = None
                if done < wanted and not self._interruption.is_requested and not writer.is_enough:
                    following = self._start(phase, done, wanted, state)
                    done, state = done + following.num_iterations, following.state
                if running is None and following is None:
                    break
                if running is not None:
                    try:
                        self._interruption.wait((running.state, running.info, running.draws))
                    except GraceOver:
                        writer.submit(segment)
                        writer.drain()
                        raise self._not_finished(phase, wanted, is_abrupt=True) from None
                    progress.advance(running.num_iterations, **segment.add(running))
                    self._watch(phase, segment.stop)
                    if following is None or self._is_end(phase, segment.stop):
                        writer.submit(segment)
                        segment = _Segment(phase, segment.stop, self._facts)
                running = following
        seconds = time.perf_counter() - begun
        self._ledger.add(phase, seconds, gradients=writer.gradients, detail=f"{wanted} iterations")
        self._ledger.add("write", writer.seconds, num_bytes=writer.num_bytes, detail=f"beside {phase}")
        if self._interruption.is_requested and done < wanted and not writer.is_enough:
            raise self._not_finished(phase, wanted)
        return state

    def _start(self, phase: str, done: int, wanted: int, state: Any) -> _Slice:
        # Iterations of warmup and draws are counted apart; only draws are looked at.
        looks = [n - done for n in self._commit_at if n > done and phase == "sample"]
        count = min(self.program.slice_draws, self.store.next_count(done, wanted), *looks)
        state, info, *draws = self.compiled[phase](*self._arguments, state, np.uint32(done), np.int32(count))
        return _Slice(done, count, state, info, draws[0] if draws else {})

    def _is_end(self, phase: str, stop: int) -> bool:
        """Return whether what was made up to `stop` is committed."""
        return stop % self.store.segment_draws == 0 or (phase == "sample" and stop in self._commit_at)

    def _not_finished(self, phase: str, wanted: int, *, is_abrupt: bool = False) -> NotFinished:
        commits = self.store.commits()
        done = f"{commits[-1].phase} {commits[-1].stop}" if commits else "nothing"
        return NotFinished(
            f"{self._label}: asked to stop by {self._interruption.requested_by}; committed: {done} of {phase} {wanted}",
            "run it again: it goes on from there, to the same draws",
            is_abrupt=is_abrupt,
        )


class _Segment:
    """Slices on the host, until they are committed together.

    Args:
        phase: ``warmup`` or ``sample``.
        start: absolute index of its first iteration.
        facts: kept beside what is counted.
    """

    def __init__(self, phase: str, start: int, facts: Mapping[str, Any]) -> None:
        self.phase, self.start, self.stop, self.facts = phase, start, start, facts
        self.state: Any = None
        self._parts: list[dict[str, dict[str, np.ndarray]]] = []
        self._begun = time.time()

    def add(self, piece: _Slice) -> dict[str, str]:
        """Copy a finished slice to the host; returns what to show of it."""
        num_chains = piece.info.energy.shape[1]
        stats = {}
        for name, value in piece.info._asdict().items():
            host = np.asarray(value)[: piece.num_iterations]
            stats[name] = host if host.ndim > 1 else np.repeat(host[:, None], num_chains, axis=1)
        part = {"warmup_sample_stats": stats}
        if self.phase == "sample":
            draws = {name: np.asarray(value)[: piece.num_iterations] for name, value in piece.draws.items()}
            part = {"sample_stats": stats, "posterior": draws}
        self._parts.append(part)
        self.state, self.stop = piece.state, piece.start + piece.num_iterations
        return {
            "acceptance": f"{stats['acceptance_rate'].mean():.2f}",
            "step": f"{stats['step_size'][-1, 0]:.3g}",
            "divergences": str(int(stats["diverging"].sum())),
        }

    def commit(self, store: ChainStore) -> tuple[Commit, int]:
        """Write it; returns the commit and the bytes written."""
        values = {
            group: {name: np.concatenate([p[group][name] for p in self._parts]) for name in arrays}
            for group, arrays in self._parts[0].items()
        }
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]
        stats = values["sample_stats" if self.phase == "sample" else "warmup_sample_stats"]
        now = time.time()
        facts = {
            **self.facts,
            "count": self.stop - self.start,
            "gradients": int(stats["n_steps"][:, 0].sum()) * stats["n_steps"].shape[1],
            "divergences": int(stats["diverging"].sum()),
            "acceptance": float(stats["acceptance_rate"].mean()),
            "step_size": float(stats["step_size"][-1, 0]),
            "seconds": round(now - self._begun, 3),
            "committed_at": now,
        }
        state = dict(zip(name_leaves(self.state), leaves, strict=True))
        commit = store.commit(self.phase, self.start, values, state, facts)
        return commit, sum(v.nbytes for group in values.values() for v in group.values()) + sum(
            v.nbytes for v in leaves
        )


class _Writer:
    """Commits segments in a thread of its own, one after the other; as a context manager it ends with the last."""

    def __init__(self, store: ChainStore, is_enough: Callable[[Commit], bool]) -> None:
        self._store, self._ask, self.is_enough = store, is_enough, False
        self.seconds, self.gradients, self.num_bytes = 0.0, 0, 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._pending: Future[None] | None = None

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        with self._pool:
            if kind is None:
                self.drain()

    def submit(self, segment: _Segment) -> None:
        """Hand over a segment; waits for the one before it, so that no more than two are in memory."""
        self.drain()
        if segment.stop > segment.start and not self.is_enough:
            self._pending = self._pool.submit(self._commit, segment)

    def drain(self) -> None:
        """Wait for what was handed over, and raise what went wrong there."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _commit(self, segment: _Segment) -> None:
        start = time.perf_counter()
        commit, num_bytes = segment.commit(self._store)
        self.seconds += time.perf_counter() - start
        self.gradients, self.num_bytes = self.gradients + commit.facts["gradients"], self.num_bytes + num_bytes
        if commit.phase == "sample":
            self.is_enough = self._ask(commit)
