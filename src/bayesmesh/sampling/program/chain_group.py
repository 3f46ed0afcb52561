"""The compiled programs of a chain group: initialise, and one segment of warmup iterations or draws.

Each is lowered and compiled ahead of time from shapes alone. A call makes any number of iterations up to its slice, so
one program serves a whole run, including warmup. Iterations are keyed by their absolute index, so a run cut anywhere gives
the same draws. Numbers of the configuration that change no shape are arguments: other values need no other program.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.config.settings import numeric_options
from bayesmesh.kernels.adaptation.warmup import readapted_begin
from bayesmesh.kernels.base import POSITION, Kernel, Position, first_chains
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import over_chains
from bayesmesh.sampling.checks.kernel import (
    check_adaptive,
    check_axes,
    check_fields,
    check_state,
    check_turns,
    offers_turns,
)
from bayesmesh.sampling.density.costs import cost_of_gradient, expected_seconds, of_chains
from bayesmesh.sampling.density.log_density import BoundTarget, Target
from bayesmesh.sampling.density.mesh import (
    CHAIN_AXIS,
    DATA_AXIS,
    compute_once,
    lay_by_chain,
    on_each_device,
    part_shape,
    sharding,
    specs_of,
    to_device,
    to_host,
)
from bayesmesh.sampling.program import turns
from bayesmesh.sampling.program.packed_statistics import Packed, label, pack, unpack
from bayesmesh.sampling.program.start_points import choose_points, num_together, place_starts
from bayesmesh.sampling.program.values import Arguments, ChainState, GroupKey, is_finite, name_leaves, place
from bayesmesh.store.ledger import Ledger

PROGRAMS = ("initialise", "segment")
"""Names of the programs of a chain group; one that continues others has a further one, ``adopt``."""

_OF_INTEGRATED = 2**31
"""Folded into the key of an iteration for the latents that are drawn after it."""

SHORT_SECONDS = 5e-3
"""Expected seconds per gradient up to which the start is compiled without optimisation: it takes nine gradients, and optimising
them takes seconds."""


class Program:
    """The programs of one model, kernel and mesh.

    Args:
        target: the log density.
        kernel: the transition kernel.
        mesh: the (chain, data) mesh.
        sampling: number of warmup iterations and where the chains start.
        num_chains: chains that run together.
        slice_draws: most iterations that one call makes; bounds the buffer of draws on the devices.

    Attributes:
        num_reported: chains whose draws are kept.
        steps_alone: whether each device steps its own chains without the others.
        points: (point, ...) around which chains start, in turn; None for the origin.
    """

    def __init__(
        self,
        target: Target,
        kernel: Kernel[Any, Any, Any, Any],
        mesh: Mesh,
        sampling: SamplingSettings,
        num_chains: int,
        slice_draws: int,
    ) -> None:
        check_adaptive(kernel)
        self.target, self.kernel, self.mesh, self.sampling = target, kernel, mesh, sampling
        self.num_chains, self.slice_draws = num_chains, slice_draws
        self.points: Position | None = None
        self.num_reported = kernel.num_chains_reported(num_chains)
        # Each device has all rows, and nothing else sums over devices.
        has_all_rows = mesh.shape[CHAIN_AXIS] > 1 and mesh.shape[DATA_AXIS] == 1 and type(target) is Target
        self.steps_alone = kernel.steps_alone and has_all_rows

    def with_slice(self, slice_draws: int) -> Program:
        """Return the programs for calls of at most `slice_draws` iterations, with the trace of the start if there is one."""
        made = copy.copy(self)
        made.slice_draws = slice_draws
        return made

    def arguments(self, key: GroupKey) -> Arguments:
        """Return the numbers with which a group's programs are called."""
        initial = self.sampling.initial
        return Arguments(
            seed=np.asarray(key.seed, np.uint32),
            first_chain=np.asarray(key.first_chain, np.uint32),
            attempt=np.zeros(self.num_chains, np.uint32),
            num_warmup=np.asarray(self.sampling.warmup, np.int32),
            spread=np.asarray(initial.spread, np.float64),
            widening=np.asarray(initial.widening, np.float64),
            learning_rate=np.asarray(initial.learning_rate, np.float64),
            center=choose_points(self.points, key.first_chain, self.num_chains),
            model={k: np.asarray(v) for k, v in numeric_options(self.target.model.options).items()},
            kernel={k: np.asarray(v) for k, v in self.kernel.numeric_options.items()},
        )

    # -- what the programs compute -------------------------------------------------------------------------------

    def keys(self, arguments: Arguments) -> jax.Array:
        """Return the keys of the chains, (chain,)."""
        return fold(jax.random.key(arguments.seed), self._numbers(arguments))

    @functools.cached_property
    def num_together(self) -> int:
        """Number of chains that start together, from a multiple of this number on."""
        return num_together(self.sampling.initial.method, self.target)

    def _numbers(self, arguments: Arguments) -> jax.Array:
        """Return the absolute numbers of the chains, (chain,) uint32."""
        return arguments.first_chain + jnp.arange(self.num_chains, dtype=jnp.uint32)

    def initialise(
        self, arguments: Arguments, data: Mapping[str, jax.Array]
    ) -> tuple[ChainState, Float[Array, " chain"]]:
        """Return the state of freshly started chains, and their log density.

        The log density is NaN where position, log density or gradient is not finite.
        """
        # Iterations count from 0; a start has keys that no iteration can have.
        last = jnp.uint32(2**32 - 1) - arguments.attempt
        keys = fold(self.keys(arguments), last)
        initial, target = self.sampling.initial, self.target.with_options(arguments.model)
        bound, kernel = target.bind(data), self.kernel.with_arguments(arguments.kernel, arguments.num_warmup)
        attempt = jnp.asarray(arguments.attempt)
        numbers = self._numbers(arguments)
        # Chains that start together share the key of the first of them, whatever the chain groups.
        of_first = fold(jax.random.key(arguments.seed), numbers - numbers % self.num_together)
        where = arguments.spread, arguments.center, numbers
        position = place_starts(initial.method, target, fold(of_first, last), attempt, *where)
        if initial.method in ("mode", "laplace"):
            from bayesmesh.sampling.program.initial import (  # loads optax, which takes a tenth of the start
                climb,
                draw_at_mode,
            )

            if initial.method == "laplace":
                position = first_chains(position, initial.climbers)
            position = climb(position, bound.log_density, initial.steps, arguments.learning_rate)
            if initial.method == "laplace":
                how = arguments.widening, initial.curvature_at, functools.partial(compute_once, self.mesh)
                position, bound.normal = draw_at_mode(keys, position, bound, *how)
        # Folded once more: the same keys drew the start.
        state = kernel.init(fold(keys, 1), position, bound)
        check_fields(kernel, state)
        lp = jnp.where(is_finite(state), state.log_prior + state.log_likelihood, jnp.nan)
        return ChainState(state, kernel.init_adaptation(state, bound)), lp

    def adopt(
        self, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, relative: ChainState
    ) -> ChainState:
        """Return chains that continue the adaptation of others, at the iteration of warmup where they begin.

        Half of them start at the positions of the others and half at their own, which the others do not influence: chains
        that all came from another mode would agree there.

        Args:
            arguments: numbers of the run.
            data: rows on the devices.
            state: freshly started chains.
            relative: the others, with a position for each chain.
        """
        bound, kernel = self.bind(arguments, data)
        is_own = jnp.arange(self.num_chains) >= self.num_chains - self.num_chains // 2

        def choose(own: jax.Array, other: jax.Array) -> jax.Array:
            return jnp.where(over_chains(is_own, own), own, other)

        position = jax.tree.map(choose, state.kernel.position, relative.kernel.position)
        begun = kernel.init(fold(self.keys(arguments), jnp.uint32(2**32 - 1)), position, bound)
        adaptation = kernel.adopt(kernel.init_adaptation(begun, bound), relative.adaptation)
        return ChainState(kernel.at_iteration(begun, readapted_begin(arguments.num_warmup)), adaptation)

    def segment(
        self, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, first: jax.Array, count: jax.Array
    ) -> tuple[ChainState, Packed, dict[str, jax.Array]]:
        """Make `count` iterations from absolute iteration `first`; those before ``num_warmup`` are warmup.

        Returns:
            The state; the kernel's statistics; and latents (iteration, chain, ...) of the reported chains. They have the
            prior's own shapes, except local ones, whose entries are padded and lie with their data. Slots from `count` on
            hold nothing.
        """
        target, (bound, kernel) = self.target.with_options(arguments.model), self.bind(arguments, data)

        def learn(before: ChainState, after: Any, info: Any, index: jax.Array) -> tuple[ChainState, Any]:
            check_state(kernel, "step", after, before.kernel)

            def adapt() -> Any:
                adapted = kernel.adapt(before.adaptation, before.kernel, after, info, bound)
                return check_state(kernel, "adapt", adapted, before.adaptation)

            # Positions and gradients stay outside, because a branch would copy what it passes through.
            is_adapting = index.astype(jnp.int32) < kernel.num_adaptive
            adaptation = jax.lax.cond(is_adapting, adapt, lambda: before.adaptation)
            after, info = kernel.restart(adaptation, after, info)
            return ChainState(after, adaptation), info

        loop = iterate_in_turns if self.takes_turns else iterate
        state, statistics, positions = loop(self, arguments, data, state, learn, first, count)
        latents = jax.vmap(jax.vmap(lambda q: target.pad_entries(target.constrain(q))))(positions)
        if target.integrated:
            is_stored = first.astype(jnp.int32) >= arguments.num_warmup
            latents |= self._draw_integrated(target, arguments, data, positions, first, jnp.where(is_stored, count, 0))
        return state, statistics, latents

    def _draw_integrated(
        self, target: Target, arguments: Arguments, data: Mapping[str, jax.Array], positions: Position, first: jax.Array,
        count: jax.Array,
    ) -> dict[str, jax.Array]:  # fmt: skip
        """Return the latents that are integrated out at the first `count` positions, one after the other to bound memory."""
        keys = self.keys(arguments)[: self.num_reported]

        def draw(i: jax.Array) -> dict[str, jax.Array]:
            # Folded once more: the same keys made the iteration.
            own = fold(fold(keys, first + i.astype(jnp.uint32)), _OF_INTEGRATED)
            at = jax.tree.map(lambda x: x[i], positions)
            return jax.vmap(target.draw_integrated, in_axes=(0, 0, None))(own, at, data)

        shapes = jax.eval_shape(draw, jnp.int32(0))
        empty = {k: jnp.zeros((self.slice_draws, *v.shape), v.dtype) for k, v in shapes.items()}
        return jax.lax.fori_loop(0, count, lambda i, made: {k: made[k].at[i].set(v) for k, v in draw(i).items()}, empty)

    def bind(
        self, arguments: Arguments, data: Mapping[str, jax.Array]
    ) -> tuple[BoundTarget, Kernel[Any, Any, Any, Any]]:
        """Return the log density on the data and the kernel, with the numbers of a run."""
        target = self.target.with_options(arguments.model).bind(data)
        return target, self.kernel.with_arguments(arguments.kernel, arguments.num_warmup)

    # -- shapes, shardings, compilation ---------------------------------------------------------------------------

    @functools.cached_property
    def takes_turns(self) -> bool:
        """Whether chains go on to their next draws while others are still at theirs; it follows from the program alone."""
        if not offers_turns(self.kernel) or (self.mesh.shape[CHAIN_AXIS] > 1 and not self.steps_alone):
            return False
        if self.mesh.devices.flat[0].platform != "cpu":
            return True
        return expected_seconds(cost_of_gradient(self.target, self.num_chains), self.mesh) >= turns.SHORT_SECONDS

    @functools.cached_property
    def state_shapes(self) -> ChainState:
        """The abstract state."""
        return jax.eval_shape(self._initialise_once, self._abstract_arguments, self.data_shapes)[0]

    @functools.cached_property
    def _initialise_once(self) -> Callable[..., tuple[ChainState, jax.Array]]:
        # Traced once, both for its shapes and for the program; inlined, it leaves no call in the program.
        return jax.jit(self.initialise, inline=True)

    @functools.cached_property
    def _abstract_arguments(self) -> Arguments:
        values = self.arguments(GroupKey(0, 0))
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), values)

    @functools.cached_property
    def state_shardings(self) -> ChainState:
        """Sharding of every array of the state, as its kernel declares it."""
        declared = ChainState(self.kernel.state_axes(), self.kernel.adaptation_axes())
        chains = tuple(dict.fromkeys((self.num_chains, self.num_reported)))
        lengths = {"chain": chains, "entry": (self.target.layout.padded_entries,), "spread": None}
        for method, shapes, axes in zip(("state_axes", "adaptation_axes"), self.state_shapes, declared, strict=True):
            check_axes(self.kernel, method, shapes, axes, lengths)
        if offers_turns(self.kernel):
            # Checked also where chains wait, because a larger program of the same kernel would take turns.
            check_turns(self.kernel, self.state_shapes.kernel, declared.kernel, self.num_chains)
        return place(self.mesh, self.state_shapes, declared)

    @property
    def data_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        """The abstract data, see `Target.data_shapes`."""
        return self.target.data_shapes()

    @property
    def position_shapes(self) -> Position:
        """The abstract position of all chains."""
        return of_chains(self.target, self.num_chains)

    @property
    def position_shardings(self) -> Position:
        """Sharding of positions."""
        return place(self.mesh, self.position_shapes, POSITION)

    @property
    def argument_shardings(self) -> Any:
        """Sharding of the arguments, and of statistics and log densities: replicated."""
        return sharding(self.mesh)

    made_sharding = argument_shardings

    @property
    def data_shardings(self) -> dict[str, NamedSharding]:
        """Sharding of the data: the device axis over `data`."""
        return {k: sharding(self.mesh, DATA_AXIS) for k in self.target.data_shapes()}

    @property
    def draw_shardings(self) -> dict[str, NamedSharding]:
        """Sharding of draws: entries of local latents over `data`, all else replicated."""
        local = self.target.local_draws
        return {
            k: sharding(self.mesh, None, None, *[None] * local[k], DATA_AXIS) if k in local else sharding(self.mesh)
            for k in (*self.target.position.shapes, *self.target.integrated)
        }

    def trace(self, name: str) -> jax.stages.Traced:
        """Trace one of `PROGRAMS`; its `.lower().compile()` is what `sampling.segment` runs."""
        everywhere, data, data_at = sharding(self.mesh), self.data_shapes, self.data_shardings
        arguments_at, made_at, state_at = self.argument_shardings, self.made_sharding, self.state_shardings
        if name == "initialise":

            def initialise(arguments: Arguments, data: Mapping[str, jax.Array]) -> tuple[ChainState, jax.Array]:
                return self._initialise_once(arguments, data)

            jitted = jax.jit(initialise, in_shardings=(arguments_at, data_at), out_shardings=(state_at, made_at))
            return jitted.trace(self._abstract_arguments, data)
        if name == "adopt":
            adopt_at = (arguments_at, data_at, state_at, state_at)
            jitted = jax.jit(self.adopt, in_shardings=adopt_at, out_shardings=state_at)
            return jitted.trace(self._abstract_arguments, data, self.state_shapes, self.state_shapes)
        in_at = (arguments_at, data_at, state_at, everywhere, everywhere)
        out_at = (state_at, made_at, self.draw_shardings)
        jitted = jax.jit(self.segment, in_shardings=in_at, out_shardings=out_at)
        return jitted.trace(self._abstract_arguments, data, self.state_shapes, _INDEX, _COUNT)

    def compiler_options(self, name: str) -> dict[str, int] | None:
        """Return XLA's options for one of `PROGRAMS`; they change rounding, so they follow from the program alone."""
        is_climbing = self.sampling.initial.method in ("mode", "laplace")
        if name != "initialise" or is_climbing or self.mesh.devices.flat[0].platform != "cpu":
            return None
        seconds = expected_seconds(cost_of_gradient(self.target, self.num_chains), self.mesh)
        return {"xla_backend_optimization_level": 0} if seconds <= SHORT_SECONDS else None

    # -- between this process's host and its devices -----------------------------------------------------------------

    @functools.cached_property
    def devices_here(self) -> range:
        """Numbers, along the data axis, of this process's devices."""
        columns = [i for i, d in enumerate(self.mesh.devices[0]) if d.process_index == jax.process_index()]
        return range(columns[0], columns[-1] + 1)

    @property
    def rows_here(self) -> tuple[int, int]:
        """First row on this process's devices, and the first row after them; padding is not counted."""
        return self.target.layout.rows_of(self.devices_here)

    def put_data(self, rows: Mapping[str, np.ndarray]) -> dict[str, jax.Array]:
        """Lay out the rows `rows_here` and copy them to the devices."""
        laid_out, shapes = self.target.lay_out(rows, self.devices_here), self.target.data_shapes()
        return {k: to_device(v, self.data_shardings[k], shapes[k].shape) for k, v in laid_out.items()}

    def read_data(
        self, read_rows: Callable[[int, int], Mapping[str, np.ndarray]], ledger: Ledger
    ) -> dict[str, jax.Array]:
        """Read the rows `rows_here` from first to last, lay them out and copy them to the devices; the ledger records the time."""
        start = time.perf_counter()
        data = self.put_data(read_rows(*self.rows_here))
        ledger.add("transfer", time.perf_counter() - start, num_bytes=sum(v.nbytes for v in data.values()))
        return data

    def draws_to_host(self, draws: Mapping[str, jax.Array], count: int) -> dict[str, np.ndarray]:
        """Copy the first `count` draws to the host; local latents have the entries of this process.

        With one process these are all entries. With several they are padded, so that all processes have blocks of equal length.
        """
        here = {k: to_host(v)[:count] for k, v in draws.items()}
        if len(self.devices_here) < self.mesh.shape[DATA_AXIS]:
            return here
        local, num_entries = self.target.local_draws, self.target.layout.num_entries
        return {
            k: v[(slice(None),) * (local[k] + 2) + (slice(num_entries),)] if k in local else v for k, v in here.items()
        }

    def statistics_to_host(self, statistics: Packed, count: int) -> dict[str, np.ndarray]:
        """Copy the statistics of the first `count` iterations to the host, (iteration, chain)."""
        return unpack(np.asarray(statistics.values)[:count], statistics.like)

    def by_chain(self, statistic: np.ndarray) -> np.ndarray:
        """Return a statistic of the host with one axis for all chains, (iteration, chain)."""
        return statistic

    def state_to_device(self, leaves: Mapping[str, np.ndarray]) -> ChainState:
        """Copy a checkpoint to the devices; `leaves` has the names of `name_leaves`, each leaf being this process's part."""
        shapes = self.state_shapes
        values = []
        trees = jax.tree.leaves(shapes), jax.tree.leaves(self.state_shardings)
        for name, leaf, at in zip(name_leaves(shapes), *trees, strict=True):
            value, shape = leaves[name], part_shape(at, leaf.shape)
            if value.shape != shape or value.dtype != leaf.dtype:
                raise ValueError(f"checkpoint leaf {name}: {value.shape} {value.dtype} is not {shape} {leaf.dtype}")
            values.append(to_device(value, at, leaf.shape))
        return jax.tree.unflatten(jax.tree.structure(shapes), values)


_INDEX, _COUNT = jax.ShapeDtypeStruct((), np.uint32), jax.ShapeDtypeStruct((), np.int32)


Made = tuple[ChainState, Packed, Position]
"""A state, and the statistics and positions (iteration, ...) of the iterations that led to it."""

Learn = Callable[[ChainState, Any, Any, jax.Array], tuple[ChainState, Any]]
"""Function from the chains before an iteration, the kernel's state after it, its info and its number to chains and info after adaptation."""


def iterate(
    program: Program, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, learn: Learn, first: jax.Array,
    count: jax.Array,
) -> Made:  # fmt: skip
    """Make iterations in which chains wait for each other."""
    keys = program.keys(arguments)

    def make_step(key: Any, chains: ChainState, data: Any, arguments: Arguments, index: jax.Array) -> Any:
        bound, kernel = program.bind(arguments, data)
        tuning = kernel.tuning(chains.adaptation, index.astype(jnp.int32) < kernel.num_adaptive)
        return kernel.step(key, chains.kernel, bound, tuning)

    if program.steps_alone:
        by_chain, lie = P(CHAIN_AXIS), specs_of(program.state_shardings)
        make_step = on_each_device(make_step, program.mesh, (by_chain, lie, *[P()] * 3), (lie.kernel, by_chain))

    def step(state: ChainState, index: jax.Array) -> tuple[ChainState, Any]:
        after, info = make_step(fold(keys, index), state, data, arguments, index)
        return learn(state, after, info, index)

    # Traced once, both for its shapes and for the loop; inlined, it leaves no call in the program.
    step = jax.jit(step, inline=True)

    def reported(position: Position) -> Position:
        return first_chains(position, program.num_reported)

    def one(i: jax.Array, carry: tuple[ChainState, turns.Rows]) -> tuple[ChainState, turns.Rows]:
        state, rows = carry
        state, info = step(state, first + i.astype(jnp.uint32))
        made = turns.Rows(pack(program.kernel, info, program.num_reported), reported(state.kernel.position))
        rows = jax.tree.map(lambda buffer, x: buffer.at[i].set(x), rows, made)
        return state, lay_by_chain(program.mesh, rows) if program.steps_alone else rows

    _, info = jax.eval_shape(step, state, first)
    empty = turns.no_rows(program.kernel, reported(state.kernel.position), program.slice_draws)
    state, rows = jax.lax.fori_loop(0, count, one, (state, empty))
    return state, label(program.kernel, info, rows.statistics), rows.position


def iterate_in_turns(
    program: Program, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, learn: Learn, first: jax.Array,
    count: jax.Array,
) -> Made:  # fmt: skip
    """Make iterations in which chains wait for each other only during warmup."""
    keys = program.keys(arguments)

    def make(
        keys: Any, chains: ChainState, rows: turns.Rows, data: Any, arguments: Arguments, *which: jax.Array
    ) -> Any:
        bound, kernel = program.bind(arguments, data)
        tuning = kernel.tuning(chains.adaptation, which[0].astype(jnp.int32) < kernel.num_adaptive)
        return turns.make_draws(kernel, keys, chains.kernel, bound, tuning, rows, *which)

    if program.steps_alone:
        by_chain, lie, rows = P(CHAIN_AXIS), specs_of(program.state_shardings), P(None, CHAIN_AXIS)
        make = on_each_device(make, program.mesh, (by_chain, lie, rows, *[P()] * 5), (lie.kernel, by_chain, rows))
    make = jax.jit(make, inline=True)
    is_warmup = first.astype(jnp.int32) < arguments.num_warmup
    each = jnp.where(is_warmup, 1, count)

    def one(i: jax.Array, carry: tuple[ChainState, turns.Rows]) -> tuple[ChainState, turns.Rows]:
        state, rows = carry
        index = first + i.astype(jnp.uint32)
        after, stored, rows = make(keys, state, rows, data, arguments, index, each, i)
        state, info = learn(state, after, stored, index)
        # A restart, which happens only in warmup, comes after the draw has been stored.
        for number, name in enumerate(sorted(program.kernel.statistics)):
            if (now := getattr(info, name)) is not getattr(stored, name):
                now = jnp.where(is_warmup, now.astype(jnp.float64), rows.statistics[i, :, number])
                rows = rows._replace(statistics=rows.statistics.at[i, :, number].set(now))
        return state, lay_by_chain(program.mesh, rows) if program.steps_alone else rows

    empty = turns.no_rows(program.kernel, state.kernel.position, program.slice_draws)
    _, info, _ = jax.eval_shape(make, keys, state, empty, data, arguments, first, each, count)
    state, rows = jax.lax.fori_loop(0, jnp.where(is_warmup, count, 1), one, (state, empty))
    return state, label(program.kernel, info, rows.statistics), rows.position
