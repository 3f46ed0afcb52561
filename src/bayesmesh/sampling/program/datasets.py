"""Many datasets in one program: a dataset axis before all others.

Every dataset has its own chains, starts and adaptation; its chains are those of a group with this dataset as its only data.
A kernel pools statistics over the chains of one call, and here a call is one dataset. Datasets of unequal length are
padded to the longest, and the padding is masked. Datasets are spread over the devices, which need not communicate. On each
device they form blocks that run one after the other, because the chains of a block wait for each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Float

from bayesmesh.kernels.base import Position
from bayesmesh.sampling.checks.kernel import check_state
from bayesmesh.sampling.density.log_density import Arrays
from bayesmesh.sampling.density.mesh import CHAIN_AXIS, sharding
from bayesmesh.sampling.density.rows import ReadRows
from bayesmesh.sampling.program.chain_group import Program
from bayesmesh.sampling.program.packed_statistics import Packed, unpack
from bayesmesh.sampling.program.starts import start_chains
from bayesmesh.sampling.program.values import Arguments, ChainState, GroupKey

_OWN = Arguments._make([False] * len(Arguments._fields))._replace(first_chain=True, attempt=True)
"""Whether each argument is separate for each dataset."""


class Draws(NamedTuple):
    """Draws of every dataset, after warmup.

    Attributes:
        latents: latent -> (dataset, draw, chain, ...), entries of local latents without padding.
        statistics: field of Info -> (dataset, draw, chain).
    """

    latents: dict[str, np.ndarray]
    statistics: dict[str, np.ndarray]


class DatasetPrograms(Program):
    """The programs of a chain group, mapped over datasets.

    Arrays on the devices have a leading axis of slots: one for each dataset, followed by copies of the first, whose
    draws are dropped. On the host, draws and statistics are (iteration, chain, dataset, ...).

    Args:
        program: programs of one dataset, padded to the longest, on one device.
        counts: number of rows of each dataset.
        mesh: the devices; datasets lie along its chain axis. The mesh of `program` if None.
        block: most datasets whose chains step together on a device; all if None.

    Attributes:
        num_chains, num_reported: of all datasets together.
    """

    def __init__(
        self, program: Program, counts: Sequence[int], mesh: Mesh | None = None, block: int | None = None
    ) -> None:
        self.program, self.counts, self.num_datasets = copy.copy(program), tuple(counts), len(counts)
        # Under `vmap`, every turn of one dataset would copy the stored draws of all.
        self.program.takes_turns = False
        self.target, self.kernel, self.sampling = program.target, program.kernel, program.sampling
        self.mesh, self.slice_draws = program.mesh if mesh is None else mesh, program.slice_draws
        self.num_chains = self.num_datasets * program.num_chains
        self.num_reported = self.num_datasets * program.num_reported
        num_devices = self.mesh.shape[CHAIN_AXIS]
        per_device = -(-self.num_datasets // num_devices)
        self._num_blocks = -(-per_device // (block or per_device))
        self.block = -(-per_device // self._num_blocks)
        self.num_slots = self.block * self._num_blocks * num_devices

    def with_slice(self, slice_draws: int) -> DatasetPrograms:
        """Return the programs for calls of at most `slice_draws` iterations."""
        made = copy.copy(self)
        made.program, made.slice_draws = self.program.with_slice(slice_draws), slice_draws
        return made

    def arguments(self, key: GroupKey) -> Arguments:
        """Return the numbers of the run: dataset i has the chains of a group whose first chain is i times the number of chains."""
        made, slots = self.program.arguments(key), np.arange(self.num_slots, dtype=np.uint32)
        first = np.where(slots < self.num_datasets, slots, 0) * np.uint32(self.program.num_chains)
        attempt = np.zeros((self.num_slots, *made.attempt.shape), np.uint32)
        return made._replace(first_chain=made.first_chain + first.astype(np.uint32), attempt=attempt)

    # -- what the programs compute -----------------------------------------------------------------------------------

    def spread(self, function: Callable[..., Any], has_axis: tuple[Any, ...]) -> Callable[..., Any]:
        """Return a function of one dataset mapped over all datasets, spread over devices and blocks.

        Args:
            function: from arrays of one dataset to arrays.
            has_axis: for each argument, or for parts of it, whether it has a leading axis of slots.
        """

        def mapped(*given: Any) -> Any:
            leaves, form = jax.tree.flatten(given)
            flags: list[bool] = jax.tree.leaves(jax.tree.broadcast(has_axis, given))

            def of_one(*each: Any) -> Any:
                return function(*jax.tree.unflatten(form, each))

            def of_device(*each: Any) -> Any:
                return self._in_blocks(of_one, flags, each)

            if self.mesh.size == 1:
                return of_device(*leaves)
            lie = tuple(P(CHAIN_AXIS) if flag else P() for flag in flags)
            return jax.shard_map(
                of_device, mesh=self.mesh, in_specs=lie, out_specs=P(CHAIN_AXIS), check_vma=False
            )(*leaves)  # fmt: skip

        return mapped

    def _in_blocks(self, function: Callable[..., Any], flags: Sequence[bool], leaves: Sequence[Any]) -> Any:
        """Map a function over the slots of one device, block after block."""
        of_block = jax.vmap(function, in_axes=[0 if flag else None for flag in flags])
        if self._num_blocks == 1:
            return of_block(*leaves)
        own = [x.reshape(self._num_blocks, self.block, *x.shape[1:]) for x, f in zip(leaves, flags, strict=True) if f]

        def one(parts: Sequence[Any]) -> Any:
            rest = iter(parts)
            return of_block(*(next(rest) if f else x for x, f in zip(leaves, flags, strict=True)))

        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), jax.lax.map(one, own))

    def initialise(
        self, arguments: Arguments, data: Mapping[str, jax.Array]
    ) -> tuple[ChainState, Float[jax.Array, "slot chain"]]:
        """Return the state of freshly started chains, and their log density; NaN as in `Program.initialise`."""
        made: tuple[ChainState, jax.Array] = self.spread(self.program.initialise, (_OWN, True))(arguments, data)
        return made

    def segment(
        self, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, first: jax.Array, count: jax.Array
    ) -> tuple[ChainState, Packed, dict[str, jax.Array]]:
        """Make `count` iterations as `Program.segment` does; statistics and latents are (slot, iteration, ...)."""
        # All datasets have made the same number of iterations as the first.
        number = self.program.kernel.num_iterations(jax.tree.map(lambda x: x[0], state.kernel))
        has_axis = (_OWN, True, True, False, False, False)
        made: tuple[ChainState, Packed, dict[str, jax.Array]] = self.spread(self._segment_of_one, has_axis)(
            arguments, data, state, first, count, number
        )
        return made

    def _segment_of_one(
        self, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, first: jax.Array, count: jax.Array,
        number: jax.Array | None,
    ) -> tuple[ChainState, Packed, dict[str, jax.Array]]:  # fmt: skip
        """Make iterations of one dataset; all datasets have made the same number of iterations."""
        if number is not None:
            kernel = self.program.kernel
            counted = check_state(kernel, "at_iteration", kernel.at_iteration(state.kernel, number), state.kernel)
            state = state._replace(kernel=counted)
        return self.program.segment(arguments, data, state, first, count)

    # -- shapes and shardings -----------------------------------------------------------------------------------------

    @property
    def data_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The abstract data: those of one dataset with a leading axis of slots."""
        return {k: s.update(shape=(self.num_slots, *s.shape)) for k, s in self.target.data_shapes().items()}

    @property
    def position_shapes(self) -> Position:
        """The abstract position of all chains of all slots, (slot, chain, ...)."""
        return jax.tree.map(lambda s: s.update(shape=(self.num_slots, *s.shape)), self.program.position_shapes)

    @property
    def position_shardings(self) -> Position:
        """Sharding of positions: by dataset."""
        return jax.tree.map(lambda _: sharding(self.mesh, CHAIN_AXIS), self.position_shapes)

    @property
    def argument_shardings(self) -> Any:
        """Sharding of the arguments: those of a dataset lie with it."""
        by_slot, everywhere = sharding(self.mesh, CHAIN_AXIS), sharding(self.mesh)
        return jax.tree.map(lambda own: by_slot if own else everywhere, _OWN)

    @property
    def made_sharding(self) -> NamedSharding:
        """Sharding of statistics and log densities."""
        return sharding(self.mesh, CHAIN_AXIS)

    @property
    def state_shardings(self) -> ChainState:
        """Sharding of every array of the state: by dataset."""
        return jax.tree.map(lambda _: sharding(self.mesh, CHAIN_AXIS), self.state_shapes)

    @property
    def data_shardings(self) -> dict[str, NamedSharding]:
        """Sharding of the data: by dataset."""
        return {k: sharding(self.mesh, CHAIN_AXIS) for k in self.target.data_shapes()}

    @property
    def draw_shardings(self) -> dict[str, NamedSharding]:
        """Sharding of draws: by dataset."""
        return {k: sharding(self.mesh, CHAIN_AXIS) for k in self.target.position.shapes}

    # -- between the host and its devices -----------------------------------------------------------------------------

    @property
    def rows_here(self) -> tuple[int, int]:
        """First row and end of all rows, with the rows of the first dataset first."""
        return 0, sum(self.counts)

    def put_data(self, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Lay out rows, field -> (row, ...), those of one dataset after the other, and copy them to the devices."""
        layout = self.target.layout
        slots, firsts = layout.slots(range(layout.num_devices)), np.cumsum([0, *self.counts])
        each = []
        for number, count in enumerate(self.counts):
            # Padding repeats the last row, as in a tile.
            within = firsts[number] + np.minimum(np.arange(layout.num_rows), count - 1)
            laid_out = self.target.lay_out({k: v[within] for k, v in rows.items()})
            each.append({**laid_out, "is_row": slots.is_row & (slots.row < count)})
        each += [each[0]] * (self.num_slots - len(each))
        lies = self.data_shardings
        return {name: jax.device_put(np.stack([one[name] for one in each]), lies[name]) for name in each[0]}

    def draws_to_host(self, draws: Mapping[str, jax.Array], count: int) -> dict[str, np.ndarray]:
        """Copy the first `count` draws of every dataset to the host, (draw, chain, dataset, ...)."""
        return {k: np.moveaxis(v, 0, 2) for k, v in self._latents_to_host(draws, count).items()}

    def statistics_to_host(self, statistics: Packed, count: int) -> dict[str, np.ndarray]:
        """Copy the statistics of the first `count` iterations to the host, (iteration, chain, dataset)."""
        return {k: np.moveaxis(v, 0, 2) for k, v in self._unpack(statistics, count).items()}

    def by_chain(self, statistic: np.ndarray) -> np.ndarray:
        """Return a statistic of the host with one axis for the chains of all datasets, those of the first one first."""
        return np.swapaxes(statistic, 1, 2).reshape(len(statistic), -1)

    def alone(
        self, key: GroupKey, chains: Sequence[int], read_rows: ReadRows
    ) -> tuple[Program, GroupKey, list[int], ReadRows]:
        """Return the programs, randomness, chains and rows of the dataset to which the first of some chains belongs."""
        number, each = chains[0] // self.program.num_chains, self.program.num_chains
        first, stop = sum(self.counts[:number]), sum(self.counts[: number + 1])

        def rows_of_dataset(start: int, end: int) -> Mapping[str, np.ndarray]:
            return read_rows(min(first + start, stop), min(first + end, stop))

        own = [chain - number * each for chain in chains if chain // each == number]
        return self.program, GroupKey(key.seed, key.first_chain + number * each), own, rows_of_dataset

    def _unpack(self, statistics: Packed, count: int) -> dict[str, np.ndarray]:
        return unpack(np.asarray(statistics.values)[: self.num_datasets, :count], statistics.like)

    def _latents_to_host(self, latents: Arrays, count: int) -> dict[str, np.ndarray]:
        layout, local = self.target.layout, self.target.model.local_latents
        cut = {k: np.asarray(v)[: self.num_datasets, :count] for k, v in latents.items()}
        return {k: v.take(range(layout.num_entries), axis=local[k] + 3) if k in local else v for k, v in cut.items()}

    # -- without a store ----------------------------------------------------------------------------------------------

    def run(self, arguments: Arguments, data: Arrays, num_draws: int) -> Draws:
        """Start every chain, run the warmup, and return `num_draws` draws of each, all in memory.

        Raises:
            NoFiniteStart: no dataset has a finite start for all of its chains.
        """
        initialise, segment = jax.jit(self.initialise), jax.jit(self.segment)
        warmup, most = self.program.sampling.warmup, self.slice_draws
        state, stop, parts = start_chains(initialise, arguments, data), warmup + num_draws, []
        for first in [*range(0, warmup, most), *range(warmup, stop, most)]:
            count = min(most, (warmup if first < warmup else stop) - first)
            state, statistics, latents = segment(arguments, data, state, np.uint32(first), np.int32(count))
            if first >= warmup:
                parts.append(Draws(self._latents_to_host(latents, count), self._unpack(statistics, count)))
        return jax.tree.map(lambda *x: np.concatenate(x, axis=1), *parts)
