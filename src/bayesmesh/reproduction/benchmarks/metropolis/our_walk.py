"""Our contender: the streaming walk, over all devices; and its adaptation of the proposal."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import jax

from bayesmesh.reproduction.benchmarks.metropolis.last_states import WalkCase, describe_states, warm_up
from bayesmesh.reproduction.benchmarks.metropolis.target import START, density
from bayesmesh.reproduction.streaming.adaptation import adapt_scale
from bayesmesh.reproduction.streaming.metropolis import TILE_CHAINS, compile_walk
from bayesmesh.reproduction.streaming.variates import exponential

__all__ = ["Adaptation", "Ours"]

_SMALL = 1_000_000
"""Number of steps below which one device is faster than several."""


def _configure() -> None:
    """Use one virtual device per core, as everywhere in this project; call before the first array of a worker."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", cores)
    jax.config.update("jax_enable_x64", True)


def target(x: jax.Array) -> jax.Array:
    """Return the density of the target, up to a factor."""
    value: jax.Array = density(x, exponential)
    return value


class Ours:
    """`bayesmesh.reproduction.streaming.metropolis`."""

    def prepare(self, case: WalkCase) -> Mapping[str, object]:
        """Compile, and warm up."""
        _configure()
        self.case = case
        devices = jax.devices()
        if case["chains"] * case["samples"] <= _SMALL:
            devices = devices[:1]
        tile = TILE_CHAINS if devices[0].platform == "cpu" else case["chains"]
        begin = time.perf_counter()
        self.program = compile_walk(target, case["chains"], devices, tile)
        seconds = time.perf_counter() - begin
        self.start = self.program.start(START)
        jax.block_until_ready(self.program.advance(self.start, 1, scale=case["scale"], seed=0))
        warm_up(self, case)
        return {"compile_s": seconds, "platform": devices[0].platform, "device": devices[0].device_kind}

    def run(self, repeat: int) -> Mapping[str, object]:
        """Take all steps of all chains; moments of all states are always kept."""
        samples = self.case["samples"]
        walk = self.program.advance(self.start, samples, scale=self.case["scale"], seed=repeat)
        last, total = self.program.chains(jax.block_until_ready(walk).position), walk.total
        return describe_states(last, self.program.chains(total) / samples if self.case["keeps_means"] else None)


class Adaptation:
    """Adapts the scale for the contenders of the adapted arm; not part of their time."""

    def prepare(self, case: WalkCase) -> Mapping[str, object]:
        """Do nothing; there is no state."""
        _configure()
        return {}

    def run(self, repeat: int) -> Mapping[str, object]:
        """Adapt."""
        return {"scale_found": round(adapt_scale(target, START, seed=repeat), 2)}
