"""Detect chains that are lost or stuck while they run, from statistics on the host.

Windows end at multiples of `WINDOW` iterations of a phase. Each commit records the number of consecutive iterations for
which all chains have been in trouble. A run that is killed, resumed or cut differently therefore ends in the same window.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
from jaxtyping import Bool, Int

from bayesmesh.errors import SamplingError
from bayesmesh.store.chains.markers import Ended, Facts

WINDOW = 100
"""Iterations for which all chains must be in trouble, from one multiple of this number to the next."""

SMALLEST_STEPS = {"float64": 1e-20, "float32": float(np.finfo(np.float32).eps)}
"""Type of the numbers -> step size, in the coordinates of the metric, below which it has vanished. In float64, the longest
trajectory, of 2**20 steps, then covers 1e-14 units, and a position near 1 keeps its value. In float32, every single step
leaves such a position where it is."""

SMALLEST_ACCEPTANCE = 1e-4
"""Acceptance probability below which a chain without moves is stuck: a random walk with few accepted moves is not."""

TROUBLES = {
    "lost": "the log density of {} was not finite",
    "frozen": "the step size of {} was below {smallest:.2g}",
    "divergent": "every trajectory of {} diverged",
    "stuck": "every proposal of {} was rejected",
}
"""Name of a trouble -> description of affected chains; if there are several in one window, the first is named."""

NAMED_CHAINS = 8
"""Most chains that a warning names."""

_ROUNDED = (
    "set `compute: {dtype: float64}`: in float32, rounding of the log density rejects moves of any size, which shrinks the"
    " step size. If it vanishes in float64 too, "
)
"""Begins the remedy for step sizes that vanish in float32."""

_REMEDY = (
    "check the model's support, and its density and gradient for overflow (compute.dtype: float64 helps); try other"
    " starts (sampling.initial), a smaller step size (kernel.initial_step_size with a longer warmup, where the kernel adapts it),"
    " or another parametrisation"
)

_log = logging.getLogger("bayesmesh")


class ChainWatch:
    """Watch the chains of a group.

    Args:
        label: names of experiment and group.
        chains: absolute numbers of the reported chains.
        is_adjusted: whether the kernel has an accept step; without one, no chain is called stuck.
        last: facts of the last commit; empty at the beginning.
        dtype: type of the numbers that are sampled.
        is_shown: whether this process writes warnings to the log.

    Attributes:
        ended: the window after which more iterations would be useless; None before.
    """

    def __init__(
        self, label: str, chains: range, *, is_adjusted: bool, last: Facts, dtype: str, is_shown: bool = True
    ) -> None:
        self._label, self._chains, self._is_adjusted, self._is_shown = label, chains, is_adjusted, is_shown
        self._dtype = dtype
        # A commit records the shortest run over all chains, which is decisive.
        self._runs = {name: np.full(len(chains), length) for name, length in last.get("runs", {}).items()}
        self._warned: set[tuple[str, int]] = set()
        self.ended = last.get("ended")

    def add(self, phase: str, start: int, statistics: Mapping[str, np.ndarray]) -> None:
        """Look at iterations (iteration, chain) of a phase, from its iteration `start` on."""
        ends = []
        smallest = SMALLEST_STEPS[self._dtype]
        for trouble, flags in find_troubles(statistics, smallest, is_adjusted=self._is_adjusted).items():
            if not flags.any():  # nearly always the case, and run lengths take longer than everything else here
                self._runs.pop(trouble, None)
                continue
            runs = run_lengths(flags, self._runs.get(trouble, np.zeros(len(self._chains), np.int64)))
            done = start + 1 + np.arange(len(runs))
            # During warmup a vanished step size may grow again, which takes more than a window from 1e-30. In float32 it
            # shrinks because the density is rounded, and every iteration costs the longest trajectory.
            is_final = phase == "sample" or trouble != "frozen" or self._dtype == "float32"
            is_end = (done % WINDOW == 0) & (runs.min(axis=1) >= WINDOW) & is_final
            ends += [Ended(phase=phase, done=int(n), trouble=trouble) for n in done[is_end][:1]]
            self._runs[trouble] = runs[-1]
            if phase == "sample":
                self._warn(trouble, start + len(runs))
        if ends and self.ended is None:
            self.ended = min(ends, key=lambda end: end["done"])

    def facts(self) -> Facts:
        """Return the facts that a commit of all iterations so far records."""
        facts: Facts = {}
        if runs := {name: int(lengths.min()) for name, lengths in self._runs.items() if lengths.min() > 0}:
            facts["runs"] = runs
        if troubled := {name: chains for name in self._runs if (chains := self._troubled(name))}:
            facts["troubled"] = troubled
        if self.ended is not None:
            facts["ended"] = self.ended
        return facts

    def check(self, num_draws: int) -> None:
        """Raise if `ended` is set and lies within the wanted draws.

        Raises:
            SamplingError: this is the case.
        """
        if self.ended is None or (self.ended["phase"] == "sample" and self.ended["done"] > num_draws):
            return
        done, trouble = self.ended["done"], self.ended["trouble"]
        unit = "draws" if self.ended["phase"] == "sample" else "warmup iterations"
        first, last = self._chains[0], self._chains[-1]
        every = f"all chains ({first} to {last})" if len(self._chains) > 1 else f"chain {first}"
        raise SamplingError(
            f"{self._label}: {self._describe(trouble, every)} in {unit} {done - WINDOW} to {done - 1};"
            " sampling has ended, because more draws would not help; committed draws are kept",
            (_ROUNDED if trouble == "frozen" and self._dtype == "float32" else "") + _REMEDY,
        )

    def _describe(self, trouble: str, chains: str) -> str:
        return TROUBLES.get(trouble, trouble).format(chains, smallest=SMALLEST_STEPS[self._dtype])

    def _troubled(self, trouble: str) -> list[int]:
        """Return the chains that have been in trouble for a window or longer."""
        return [self._chains[i] for i in np.flatnonzero(self._runs[trouble] >= WINDOW)]

    def _warn(self, trouble: str, done: int) -> None:
        """Log chains in trouble, each once."""
        if new := [chain for chain in self._troubled(trouble) if (trouble, chain) not in self._warned]:
            self._warned |= {(trouble, chain) for chain in new}
            more = f" and {len(new) - NAMED_CHAINS} more" if len(new) > NAMED_CHAINS else ""
            named = f"chain{'s' if len(new) > 1 else ''} {', '.join(map(str, new[:NAMED_CHAINS]))}{more}"
            if self._is_shown:
                said = self._describe(trouble, named)
                _log.warning("%s: %s in the %d draws before draw %d", self._label, said, WINDOW, done)


def find_troubles(
    statistics: Mapping[str, np.ndarray], smallest_step: float, *, is_adjusted: bool
) -> dict[str, Bool[np.ndarray, "iteration chain"]]:
    """Return trouble -> where it occurs, for those in `TROUBLES` that the kernel's statistics reveal."""
    found = {"lost": ~np.isfinite(statistics["lp"])}
    if "step_size" in statistics:
        found["frozen"] = ~(statistics["step_size"] >= smallest_step)
    if "divergent_share" in statistics:
        # Share among the many trajectories of a draw; `diverging` says whether any of them diverged.
        found["divergent"] = statistics["divergent_share"] >= 1
    elif "diverging" in statistics:
        found["divergent"] = statistics["diverging"].astype(bool)
    if is_adjusted and "accepted" in statistics:
        may_move = [statistics[name].astype(bool) for name in ("accepted", "swapped") if name in statistics]
        if "acceptance_rate" in statistics:
            may_move.append(statistics["acceptance_rate"] >= SMALLEST_ACCEPTANCE)
        found["stuck"] = ~np.logical_or.reduce(may_move)
    return found


def run_lengths(
    flags: Bool[np.ndarray, "iteration chain"], before: Int[np.ndarray, "*chain"]
) -> Int[np.ndarray, "iteration chain"]:
    """Return for how many iterations in a row each chain is flagged, up to each iteration.

    Args:
        flags: flags of iterations, in order.
        before: run lengths up to the iteration before the first.

    >>> run_lengths(np.array([[True], [False], [True], [True]]), np.array([5])).ravel()
    array([6, 0, 1, 2])
    """
    count = np.arange(1, len(flags) + 1)[:, None]
    last = np.maximum.accumulate(np.where(flags, 0, count), axis=0)
    return count - last + np.where(last == 0, before, 0)
