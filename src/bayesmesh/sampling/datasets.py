"""Many datasets of one shape in one program: a dataset axis before all others.

Every dataset has its own chains, starts and adaptation; its chains are those of a group that has it for its only data.
A kernel pools statistics over the chains of one call, and here a call is one dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from bayesmesh.sampling.density import Arrays
from bayesmesh.sampling.program import Arguments, GroupKey, Program
from bayesmesh.sampling.starts import start_chains


class Draws(NamedTuple):
    """Draws of every dataset, after warmup.

    Attributes:
        latents: latent -> (dataset, draw, chain, ...), entries of local latents without padding.
        statistics: field of Info -> (dataset, draw, ...).
    """

    latents: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]


class DatasetPrograms:
    """The programs of a chain group, mapped over datasets.

    Args:
        program: of one dataset, on the devices of one process.
        num_datasets: length of the dataset axis.
    """

    def __init__(self, program: Program, num_datasets: int) -> None:
        self.program, self.num_datasets = program, num_datasets
        mapped = Arguments._make([None] * len(Arguments._fields))._replace(first_chain=0, attempt=0)
        self._initialise = jax.jit(jax.vmap(program.initialise, in_axes=(mapped, 0)))
        self._segment = jax.jit(jax.vmap(program.segment, in_axes=(mapped, 0, 0, None, None)))

    def arguments(self, seed: int) -> Arguments:
        """Return the numbers of the run: dataset i has the chains of a group whose first is i times the chains."""
        first = np.arange(self.num_datasets, dtype=np.uint32) * np.uint32(self.program.num_chains)
        made = self.program.arguments(GroupKey(seed, 0))
        return made._replace(first_chain=first, attempt=np.zeros((self.num_datasets, *made.attempt.shape), np.uint32))

    def put_data(self, datasets: Sequence[Mapping[str, np.ndarray]]) -> Arrays:
        """Lay out the rows of every dataset, field -> (row, ...), and copy them to the device."""
        each = [self.program.target.lay_out(rows) for rows in datasets]
        return {name: jax.device_put(np.stack([laid_out[name] for laid_out in each])) for name in each[0]}

    def run(self, arguments: Arguments, data: Arrays, num_draws: int) -> Draws:
        """Start every chain, make the warmup, and return `num_draws` draws of each.

        Raises:
            NoFiniteStart: a chain of some dataset has no finite start.
        """
        warmup, most = self.program.sampling.warmup, self.program.slice_draws
        state, stop, parts = start_chains(self._initialise, arguments, data), warmup + num_draws, []
        for first in [*range(0, warmup, most), *range(warmup, stop, most)]:
            count = min(most, (warmup if first < warmup else stop) - first)
            index = np.uint32(first), np.int32(count)
            state, statistics, latents = self._segment(arguments, data, state, *index)
            if first >= warmup:
                parts.append(Draws(self._to_host(latents, count), _cut(statistics, count)))
        return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)

    def _to_host(self, latents: Arrays, count: int) -> dict[str, np.ndarray]:
        layout, local = self.program.target.layout, self.program.target.model.local_latents
        return {
            k: v.take(range(layout.num_entries), axis=local[k] + 3) if k in local else v
            for k, v in _cut(latents, count).items()
        }


def _cut(arrays: Arrays, count: int) -> dict[str, np.ndarray]:
    return {k: np.asarray(v)[:, :count] for k, v in arrays.items()}
