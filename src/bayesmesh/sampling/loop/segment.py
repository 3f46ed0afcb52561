"""The one loop: slice after slice, segment after segment, from the committed to the wanted draws.

A slice is one call of the compiled program and takes seconds; a segment is stored in one shard and takes a minute. The first
slice is one iteration, and measured time decides the length of the next ones. Iterations that have waited for the time of a
segment are committed even if the segment is incomplete. While the devices run a slice, the previous slice is copied and a
thread writes the previous segment. Host memory holds two segments, however many draws are requested.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import numpy as np

from bayesmesh.errors import NotFinished, SamplingError
from bayesmesh.kernels.adaptation.warmup import readapted_begin
from bayesmesh.sampling.density.log_density import Arrays
from bayesmesh.sampling.density.peers import Peers
from bayesmesh.sampling.loop.interruption import GraceOver, Interruption
from bayesmesh.sampling.loop.progress import Progress
from bayesmesh.sampling.loop.watch import ChainWatch
from bayesmesh.sampling.loop.writer import Segment, Slice, Writer
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.sizes import SLICE_SECONDS
from bayesmesh.sampling.program.starts import NoFiniteStart, start_chains
from bayesmesh.sampling.program.values import ChainState, GroupKey
from bayesmesh.store.chains.markers import Commit, Facts
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.ledger import Ledger

GROWTH = 4
"""Most times that a slice is longer than the slice before."""

LONGEST_SECONDS = 30.0
"""Bound on the time of a slice if every draw takes the most gradients: after an easy stretch, trajectories may become a hundred
times as long. A slice that does not end in the grace period is lost."""

Compiled = Mapping[str, Callable[..., Any]]
"""Name -> compiled program, or a recorded one."""


class Loop:
    """Bring a chain group to a number of draws, continuing from its last commit.

    Args:
        program: provides shapes and shardings.
        compiled: both compiled programs.
        key: randomness of the group.
        data: rows on the devices.
        store: the group's store, whose lock the caller holds.
        ledger: receives one row per kind of work.
        interruption: says whether to stop.
        peers: the processes that run this together; a single process if None.
        label: shown by the progress bar.
        facts: recorded with every commit of this run, such as the device.
        should_stop: called after every commit of draws, in the writer's thread; True ends the run.
        commit_at: draw counts that are committed even if a segment is incomplete, so that `should_stop` sees them.
        watch: called after every slice with the phase and the iterations done.
        relative: chains whose adaptation these continue, with a position for each; None to start by themselves.
        after_warmup: called once the warmup of chains that continue others is committed; raises if they must not go on.
    """

    def __init__(
        self,
        program: Program,
        compiled: Compiled,
        key: GroupKey,
        data: Arrays,
        store: ChainStore,
        ledger: Ledger,
        interruption: Interruption,
        *,
        label: str,
        facts: Facts,
        should_stop: Callable[[], bool] = lambda: False,
        commit_at: Collection[int] = (),
        watch: Callable[[str, int], None] = lambda phase, done: None,
        peers: Peers | None = None,
        relative: ChainState | None = None,
        after_warmup: Callable[[], None] = lambda: None,
    ) -> None:
        self.program, self.compiled, self.store = program, compiled, store
        self._arguments = (program.arguments(key), data)
        self._numbers = range(key.first_chain, key.first_chain + program.num_reported)
        self._ledger, self._interruption, self._label = ledger, interruption, label
        self._facts, self._should_stop, self._watch = facts, should_stop, watch
        self._commit_at = frozenset(commit_at)
        self._peers = Peers() if peers is None else peers
        self._relative, self._after_warmup = relative, after_warmup
        # Iterations of warmup are counted from the first one that is made.
        self._first = 0 if relative is None else int(readapted_begin(program.sampling.warmup))
        self._in_flight: object = ()
        self._stopped_by = ""
        self._is_due = False
        self._most, self._ended = 1, 0.0

    def run(self, num_draws: int, last: Commit | None) -> None:
        """Make and commit draws until there are `num_draws` or `should_stop` is True; `num_draws` may be fewer than already exist.

        Args:
            num_draws: number of wanted draws per chain.
            last: the commit from which to continue, from `resume_together`; None to begin.

        Raises:
            NotFinished: the job was asked to stop; all iterations made are committed.
            SamplingError: all chains were lost or stuck for a window of iterations.
            NoFiniteStart: no finite start was found for a chain.
            PeerError: another process failed.
        """
        try:
            self._run(num_draws, last)
        except (NoFiniteStart, SamplingError):
            # All processes see the same chains.
            self._peers.have_parted = True
            raise
        self.store.end_writing()

    def _run(self, num_draws: int, last: Commit | None) -> None:
        wanted = {"warmup": self.program.sampling.warmup - self._first, "sample": num_draws}
        self._chains = ChainWatch(
            self._label, self._numbers, is_adjusted=self.program.kernel.is_adjusted, is_shown=self._peers.is_first,
            last={} if last is None else last.facts, dtype=self.program.target.dtype.name,
        )  # fmt: skip
        self._chains.check(num_draws)
        phase, done, state = self._restore(last)
        writer, seconds = Writer(self.store, self._should_stop, None if self._peers.is_alone else self._meet), {}
        try:
            with writer:
                for current in ("warmup", "sample"):
                    if current == "sample" and phase == "warmup":
                        if self._relative is not None:
                            writer.drain()
                            self._after_warmup()
                        phase, done = "sample", 0
                    if current == phase and done < wanted[current]:
                        begun = time.perf_counter()
                        done, state = self._run_phase(current, done, wanted[current], state, writer)
                        seconds[current] = time.perf_counter() - begun
                        self._check_end(current, done, wanted[current], writer)
        finally:
            for ended, taken in seconds.items():
                made = writer.written[ended]
                self._ledger.add(ended, taken, gradients=made.gradients, detail=f"{made.num_iterations} iterations")
                self._ledger.add("write", made.seconds, num_bytes=made.num_bytes, detail=f"beside {ended}")

    def _check_end(self, phase: str, done: int, wanted: int, writer: Writer) -> None:
        """Raise if the job was asked to stop, or if the chains are lost; all iterations made are committed."""
        if self._chains.ended is None and self._stopped_by and done < wanted and not writer.is_enough:
            self._peers.have_parted = True
            raise self._not_finished(phase, wanted)
        self._chains.check(wanted)

    def _restore(self, commit: Commit | None) -> tuple[str, int, ChainState]:
        """Return the phase, iterations done and state, from a commit or from the start."""
        if commit is not None:
            with self._ledger.phase("resume", f"{commit.phase} {commit.stop}"):
                leaves = self.store.load_checkpoint(commit)
                return commit.phase, commit.stop, self.program.state_to_device(leaves)
        with self._ledger.phase("initialise"):
            try:
                method = self.program.sampling.initial.method
                initialise = functools.partial(self._interruption.call, self.compiled["initialise"])
                wait, together = self._interruption.wait, self.program.num_together
                state = start_chains(initialise, *self._arguments, wait, method, together)
                return "warmup", 0, state if self._relative is None else self._adopt(state)
            except GraceOver:
                raise self._not_finished("warmup", 0, is_abrupt=True) from None

    def _adopt(self, state: ChainState) -> ChainState:
        """Return chains that continue those of the relative, half of them from where they started by themselves."""
        state = self._interruption.call(self.compiled["adopt"], *self._arguments, state, self._relative)
        self._interruption.wait(state)
        return state

    def _run_phase(
        self, phase: str, done: int, wanted: int, state: ChainState, writer: Writer
    ) -> tuple[int, ChainState]:
        """Run one phase to its end; copying lags one slice behind the devices, and writing lags one segment.

        The last segment of warmup is still being written when this returns.

        Returns:
            The iterations done and the state.
        """
        unit, self._ended = "iteration" if phase == "warmup" else "draw", time.perf_counter()
        with Progress(f"{self._label} {phase}", wanted, done, unit=unit, is_shown=self._peers.is_first) as progress:
            segment, running = self._segment(phase, done, wanted), None
            try:
                while done < wanted or running is not None:
                    following, is_over = None, done >= wanted or self._is_over(writer, segment)
                    # A single iteration may take minutes: it is copied before the next one begins.
                    if not is_over and (running is None or self._most > 1):
                        following = self._start(phase, done, wanted, state)
                        done, state = done + following.num_iterations, following.state
                    if running is None and following is None:
                        break
                    if running is not None:
                        self._interruption.wait(running.arrays)
                        progress.advance(running.num_iterations, **segment.add(running))
                        self._fit(running.num_iterations, segment.last_gradients)
                        self._watch(phase, segment.stop)
                        if is_over or self._is_due or self._is_end(phase, segment.stop):
                            writer.submit(segment)
                            segment, self._is_due = self._segment(phase, segment.stop, wanted), False
                    running = following
            except GraceOver:
                if self._peers.is_alone:
                    if running is not None and all(leaf.is_ready() for leaf in jax.tree.leaves(running.arrays)):
                        segment.add(running)
                    writer.submit(segment)
                    writer.drain()
                raise self._not_finished(phase, wanted, is_abrupt=True) from None
        if phase == "sample" or self._chains.ended is not None or (self._stopped_by and done < wanted):
            writer.drain()
        return done, state

    def _segment(self, phase: str, start: int, wanted: int) -> Segment:
        room = self.store.next_count(start, wanted)
        return Segment(phase, start, room, self._facts, self.program, self._chains, is_first=self._peers.is_first)

    def _is_over(self, writer: Writer, segment: Segment) -> bool:
        """Return whether to begin nothing new: a process was asked to stop, has enough or failed, and all processes know."""
        is_due = segment.age >= self.program.sampling.segment_seconds
        said = self._exchange((self._interruption.requested_by, writer.has_enough, writer.failure, is_due, self._most))
        self._stopped_by = next((by for by, *_ in said if by), "")
        # Decided by one clock, so that all processes draw and commit the same.
        *_, self._is_due, self._most = said[0]
        return self._chains.ended is not None or any(any(each[:3]) for each in said)

    def _fit(self, num_iterations: int, num_gradients: int) -> None:
        """Choose the most iterations of the next slice from the time of the last one, with its gradients of a chain."""
        now = time.perf_counter()
        seconds, self._ended = now - self._ended, now
        longest = seconds / num_gradients * self.program.kernel.most_gradients()
        fitting = min(num_iterations * SLICE_SECONDS / seconds, LONGEST_SECONDS / longest, GROWTH * self._most)
        self._most = max(1, int(fitting)) if 2 * fitting < self.program.slice_draws else self.program.slice_draws

    def _meet(self, failure: str, has_enough: bool) -> bool:
        said = self._exchange((failure, has_enough))
        self._peers.raise_failure([text for text, _ in said])
        return any(enough for _, enough in said)

    def _exchange[Value](self, value: Value) -> list[Value]:
        """Exchange a value with the others; the exchange must not overlap with the collectives of a slice."""
        if not self._peers.is_alone:
            self._interruption.wait(self._in_flight)
        return self._peers.exchange(value)

    def _start(self, phase: str, done: int, wanted: int, state: ChainState) -> Slice:
        # Iterations of warmup and draws are counted separately; looks are only at draws.
        looks = [n - done for n in self._commit_at if n > done and phase == "sample"]
        count = min(self._most, self.store.next_count(done, wanted), *looks)
        # The program counts iterations from the beginning of warmup.
        index = self._first + done if phase == "warmup" else self.program.sampling.warmup + done
        arguments = *self._arguments, state, np.uint32(index), np.int32(count)
        state, statistics, draws = self._interruption.call(self.compiled["segment"], *arguments)
        self._in_flight = (state, statistics, draws)
        return Slice(done, count, state, statistics, {} if phase == "warmup" else draws)

    def _is_end(self, phase: str, stop: int) -> bool:
        """Return whether iterations up to `stop` are committed regardless of the time: at the end of a shard, or for a look."""
        return stop % self.store.segment_draws == 0 or (phase == "sample" and stop in self._commit_at)

    def _not_finished(self, phase: str, wanted: int, *, is_abrupt: bool = False) -> NotFinished:
        commits = self.store.commits()
        done = f"{commits[-1].phase} {commits[-1].stop}" if commits else "nothing"
        grace = f"; what was running did not end within sampling.grace_seconds: {self._interruption.grace_seconds:g}"
        return NotFinished(
            f"{self._label}: asked to stop by {self._stopped_by or self._interruption.requested_by}; committed: {done} of {phase} {wanted}{grace if is_abrupt else ''}",
            "rerun the command to resume; the draws are the same",
            is_abrupt=is_abrupt,
        )
