"""Iterations on the host until they are committed, and the thread that commits them."""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, cast

import jax
import numpy as np

from bayesmesh.sampling.density.mesh import to_host
from bayesmesh.sampling.loop.watch import ChainWatch
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.packed_statistics import Packed
from bayesmesh.sampling.program.values import ChainState, name_leaves
from bayesmesh.store.chains.markers import Commit, Facts
from bayesmesh.store.chains.segments import ChainStore


class Slice(NamedTuple):
    """Iterations submitted to the devices."""

    start: int
    num_iterations: int
    state: ChainState
    statistics: Packed
    draws: Mapping[str, jax.Array]

    @property
    def arrays(self) -> tuple[object, ...]:
        """All that the devices compute for it."""
        return self.state, self.statistics, self.draws


class _Note(NamedTuple):
    """A statistic of a segment's iterations: its fact in a marker, and its label and format on the progress bar."""

    statistic: str
    fact: str
    label: str
    form: str
    reduce: Callable[[np.ndarray], float]


_NOTES = (
    _Note("acceptance_rate", "acceptance", "acceptance", "{:.2f}", lambda values: float(values.mean())),
    _Note("step_size", "step_size", "step", "{:.3g}", lambda values: float(np.median(values[-1]))),
    _Note("diverging", "divergences", "divergences", "{}", lambda values: int(values.sum())),
)
"""Statistics that are noted if the kernel records them."""


class Segment:
    """Iterations on the host until they are committed together; stored in the order in which they are written.

    Args:
        phase: ``warmup`` or ``sample``.
        start: absolute index of its first iteration.
        room: most iterations that it will hold.
        facts: facts to commit in addition to those that are counted.
        program: program that made the slices.
        watch: checks the statistics; its facts are committed too.
        is_first: whether this process keeps what all processes hold, or only its own rows of local latents.

    Attributes:
        last_gradients: gradients of the last slice, of the chain that took most.
    """

    def __init__(
        self, phase: str, start: int, room: int, facts: Facts, program: Program, watch: ChainWatch, *, is_first: bool
    ) -> None:
        self.phase, self.start, self.stop, self.facts = phase, start, start, facts
        self.state: ChainState | None = None
        self.last_gradients = 1
        self._room, self._program, self._watch, self._is_first = room, program, watch, is_first
        self._stats: dict[str, np.ndarray] = {}
        self._draws: dict[str, np.ndarray] = {}
        self._noticed: Facts = {}
        self._begun = time.monotonic()

    def add(self, piece: Slice) -> dict[str, str]:
        """Copy a finished slice to the host; return what to show of it."""
        stats = self._program.statistics_to_host(piece.statistics, piece.num_iterations)
        self._keep(self._stats, stats)
        self.last_gradients = max(1, int(stats["n_steps"].sum(axis=0).max()))
        self._watch.add(self.phase, piece.start, {k: self._program.by_chain(v) for k, v in stats.items()})
        self._noticed = self._watch.facts()
        local = self._program.target.local_draws
        ours = {k: v for k, v in piece.draws.items() if self._is_first or k in local}
        self._keep(self._draws, self._program.draws_to_host(ours, piece.num_iterations))
        self.state, self.stop = piece.state, piece.start + piece.num_iterations
        return {n.label: n.form.format(n.reduce(stats[n.statistic])) for n in _NOTES if n.statistic in stats}

    @property
    def age(self) -> float:
        """Return the seconds since the segment was begun."""
        return time.monotonic() - self._begun

    def _keep(self, kept: dict[str, np.ndarray], values: Mapping[str, np.ndarray]) -> None:
        """Append arrays (iteration, chain, ...) to the stored ones, which are (chain, iteration, ...)."""
        begin = self.stop - self.start
        for name, value in values.items():
            if name not in kept:
                # Pages that no iteration reaches are never touched, and use no memory.
                kept[name] = np.empty((value.shape[1], self._room, *value.shape[2:]), value.dtype)
            kept[name][:, begin : begin + len(value)] = np.swapaxes(value, 0, 1)

    def _taken(self, kept: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the stored arrays as views, (iteration, chain, ...)."""
        return {name: np.swapaxes(value[:, : self.stop - self.start], 0, 1) for name, value in kept.items()}

    def commit(self, store: ChainStore, *, is_final: bool = True) -> tuple[Commit, int]:
        """Write the segment; return the commit and the bytes written."""
        stats, draws = self._taken(self._stats), self._taken(self._draws)
        values = {"posterior": draws} if self.phase == "sample" else {}
        if self._is_first:
            values["sample_stats" if self.phase == "sample" else "warmup_sample_stats"] = stats
        leaves = [to_host(leaf) for leaf in jax.tree.leaves(self.state)]
        count = self.stop - self.start
        facts: Facts = {
            **self.facts,
            **self._noticed,
            "count": count,
            # The statistics cover the reported chains; the others take as many gradients.
            "gradients": int(stats["n_steps"].sum()) * self._program.num_chains // self._program.num_reported,
            **cast(Facts, {n.fact: n.reduce(stats[n.statistic]) for n in _NOTES if n.statistic in stats}),
            "seconds": round(self.age, 3),
            "committed_at": time.time(),
        }
        state = dict(zip(name_leaves(self.state), leaves, strict=True))
        commit = store.commit(self.phase, self.start, values, state, facts, count=count, is_final=is_final)
        return commit, sum(v.nbytes for group in values.values() for v in group.values()) + sum(
            v.nbytes for v in leaves
        )


@dataclasses.dataclass
class Written:
    """Seconds that commits took, and the gradients, bytes and iterations in them."""

    seconds: float = 0.0
    gradients: int = 0
    num_bytes: int = 0
    num_iterations: int = 0


class Writer:
    """Commit segments in a separate thread, one after the other; as a context manager it ends with the last one.

    The last segment of warmup is written while the devices already sample.

    Args:
        store: the store.
        should_stop: called after every commit of draws, in the thread; True ends sampling.
        meet: called before a commit is settled, with its error message, empty if there is none, and whether there are enough
            draws. It returns whether any process has enough, and raises if another process failed, so no process is more
            than one commit ahead. None if there is only one process.

    Attributes:
        has_enough: last result of `should_stop`.
        is_enough: whether any process had enough draws when they last met.
        written: phase -> what has been written of it.
    """

    def __init__(
        self, store: ChainStore, should_stop: Callable[[], bool], meet: Callable[[str, bool], bool] | None = None
    ) -> None:
        self._store, self._should_stop, self._meet = store, should_stop, meet
        self.has_enough = self.is_enough = False
        self.written: dict[str, Written] = collections.defaultdict(Written)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._pending: Future[None] | None = None

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._pool:
            if kind is None:
                self.drain()

    @property
    def failure(self) -> str:
        """Error message of the last submitted segment; empty if there is none."""
        pending = self._pending
        return _text(pending.exception()) if pending is not None and pending.done() else ""

    def submit(self, segment: Segment) -> None:
        """Submit a segment, after waiting for the one before it, so that no more than two are in memory."""
        self.drain()
        if segment.stop > segment.start and not self.is_enough:
            self._pending = self._pool.submit(self._commit, segment)

    def drain(self) -> None:
        """Wait for the submitted segment, and raise its error if it failed."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        failure = _text(pending.exception())
        self.is_enough = self.has_enough if self._meet is None else self._meet(failure, self.has_enough)
        pending.result()
        if self._meet is not None:
            self._store.settle()

    def _commit(self, segment: Segment) -> None:
        start = time.perf_counter()
        commit, num_bytes = segment.commit(self._store, is_final=self._meet is None)
        written = self.written[commit.phase]
        written.seconds += time.perf_counter() - start
        written.num_iterations += commit.facts["count"]
        written.gradients += commit.facts["gradients"]
        written.num_bytes += num_bytes
        if commit.phase == "sample":
            self.has_enough = self._should_stop()


def _text(error: BaseException | None) -> str:
    return "" if error is None else f"{error}" or type(error).__name__
