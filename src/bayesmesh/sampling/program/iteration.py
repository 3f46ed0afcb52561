"""The loop of the program `segment`: iterations of chains that wait for each other, or that take turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from bayesmesh.kernels.base import Kernel, Position, Target, first_chains
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.sampling.density.mesh import CHAIN_AXIS
from bayesmesh.sampling.program import turns
from bayesmesh.sampling.program.packed_statistics import Packed, label, pack
from bayesmesh.sampling.program.steps import lay_by_chain, on_each_device, specs_of
from bayesmesh.sampling.program.values import Arguments, ChainState

Made = tuple[ChainState, Packed, Position]
"""A state, and the statistics and positions (iteration, ...) of the iterations that led to it."""

Learn = Callable[[ChainState, Any, Any, jax.Array], tuple[ChainState, Any]]
"""Function from the chains before an iteration, the kernel's state after it, its info and its number to chains and info after adaptation."""


class Looped(Protocol):
    """The part of `Program` that a loop uses."""

    kernel: Kernel[Any, Any, Any, Any]
    mesh: Mesh
    num_reported: int
    slice_draws: int
    steps_alone: bool

    @property
    def state_shardings(self) -> ChainState: ...
    def keys(self, arguments: Arguments) -> jax.Array: ...
    def bind(
        self, arguments: Arguments, data: Mapping[str, jax.Array]
    ) -> tuple[Target, Kernel[Any, Any, Any, Any]]: ...


def iterate(
    program: Looped, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, learn: Learn, first: jax.Array,
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
    program: Looped, arguments: Arguments, data: Mapping[str, jax.Array], state: ChainState, learn: Learn, first: jax.Array,
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
