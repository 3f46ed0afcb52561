"""Our contender: the streaming walk, over all devices; and its adaptation of the proposal."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from bayesmesh.store.machine import usable_cores
from bayesmesh_reproduction.benchmarks.metropolis.states import JaxWalk, describe_states
from bayesmesh_reproduction.benchmarks.metropolis.target import START, density
from bayesmesh_reproduction.streaming.adaptation import adapt_scale
from bayesmesh_reproduction.streaming.metropolis import TILE_CHAINS, compile_walk
from bayesmesh_reproduction.streaming.variates import exponential

_SMALL = 1_000_000
"""Number of steps below which one device is faster than several."""


def target(x: jax.Array) -> jax.Array:
    """Return the density of the target, up to a factor."""
    value: jax.Array = density(x, exponential)
    return value


class Ours(JaxWalk):
    """`bayesmesh_reproduction.streaming.metropolis`; moments of all states are always kept."""

    is_wide = True

    def start(self) -> None:
        # One virtual device per core, as everywhere in this project; only possible before the first array.
        jax.config.update("jax_num_cpu_devices", usable_cores())
        is_small = self.case["chains"] * self.case["samples"] <= _SMALL
        self.devices = jax.devices()[:1] if is_small else jax.devices()

    def compile(self) -> None:
        tile = TILE_CHAINS if self.devices[0].platform == "cpu" else self.case["chains"]
        self.program = compile_walk(target, self.case["chains"], self.devices, tile)

    def warm_up(self) -> None:
        self.first = self.program.start(START)
        jax.block_until_ready(self.program.advance(self.first, 1, scale=self.case["scale"], seed=0))
        super().warm_up()

    def run(self, repeat: int) -> dict[str, object]:
        samples = self.case["samples"]
        walk = self.program.advance(self.first, samples, scale=self.case["scale"], seed=repeat)
        last, total = self.program.chains(jax.block_until_ready(walk).position), walk.total
        return describe_states(last, self.program.chains(total) / samples if self.case["keeps_means"] else None)


class Adaptation:
    """Adapts the scale for the contenders of the adapted arm; not part of their time."""

    def prepare(self, case: Mapping[str, object]) -> dict[str, object]:
        """Adapt."""
        jax.config.update("jax_enable_x64", True)
        return {"scale_found": round(adapt_scale(target, START, seed=0), 2)}
