"""Make draws of chains that do not wait for the longest transition among them.

Chains evaluate gradients together, so one draw of all chains takes as many gradients as the longest transition. If lengths
differ, up to half of the gradients are spent on chains that are done (Dance, Glaser, Orbanz and Adams 2025, "Efficiently
vectorized MCMC on modern accelerators"). A transition depends only on the key, state and iteration of its own chain, so a
chain can begin its next one while others are still at theirs. This happens in turns. A turn begins a transition in every
chain without one, takes gradients until half of the chains that have a further draw to make are done, and stores their
draws. More turns would save more gradients, but each costs about as much as a short gradient of all chains. No draw depends
on where turns or calls of a program end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, UInt32

from bayesmesh.kernels.base import Kernel, Position, TakesTurns, Target
from bayesmesh.kernels.hamiltonian.random_numbers import fold
from bayesmesh.kernels.hamiltonian.trajectory import over_chains
from bayesmesh.sampling.checks.kernel import check_complete, check_state
from bayesmesh.sampling.program.packed_statistics import pack

SHORT_SECONDS = 1e-3
"""Expected seconds per gradient of all chains below which chains wait on a CPU: turns give a program a tenth more loops to compile."""


class Rows(NamedTuple):
    """The buffers of a call, one row for each iteration: packed statistics, and positions (row, chain, ...)."""

    statistics: Float[Array, "row chain field"]
    position: Position


class _Turn(NamedTuple):
    """The chains between two turns.

    Attributes:
        state, work, info: of all chains; for a chain that waits, those of its last transition.
        is_idle: (chain,), whether the last transition is complete and stored.
        num_made: (chain,) int32, draws so far.
        rows: the draws stored so far.
    """

    state: Any
    work: Any
    info: Any
    is_idle: jax.Array
    num_made: jax.Array
    rows: Rows


def make_draws(
    kernel: Kernel[Any, Any, Any, Any],
    keys: Key[Array, " chain"],
    state: Any,
    target: Target,
    tuning: Any,
    rows: Rows,
    first: UInt32[Array, ""],
    count: Int[Array, ""],
    row: Int[Array, ""],
) -> tuple[Any, Any, Rows]:
    """Make `count` draws of every chain, each at its own pace.

    Args:
        kernel: one that `TakesTurns`.
        keys: keys of the chains; folding in an iteration gives the key of its transition.
        state: state of all chains; a number that they share counts iterations.
        target: the log density.
        tuning: tuning for all draws.
        rows: buffers that receive statistics and positions.
        first: () uint32, absolute iteration of the first draw.
        count: () int32, draws of each chain; if 1, all wait for the longest transition.
        row: () int32, row of the first draw.

    Returns:
        The state; the info of the last turn, which covers all chains if `count` is 1; and `rows`.
    """
    assert isinstance(kernel, TakesTurns)
    num_chains = len(keys)

    def begin(num_made: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        key = fold(keys, first + num_made.astype(jnp.uint32))
        return key, kernel.begin(key, state, target, tuning)

    def take(turn: _Turn) -> _Turn:
        key, begun = begin(turn.num_made, turn.state)
        is_left, has_next = turn.num_made < count, turn.num_made + 1 < count
        work = check_state(kernel, "renew", kernel.renew(turn.work, begun, is_left & turn.is_idle), begun, "begin")
        enough = jnp.maximum((has_next.sum() + 1) // 2, 1)

        def goes_on(work: Any) -> jax.Array:
            is_complete = check_complete(kernel, kernel.is_complete(work), num_chains)
            return ~is_complete.all() & ((is_complete & has_next).sum() < enough)

        def advance(work: Any) -> Any:
            return check_state(kernel, "advance", kernel.advance(key, work, turn.state, target, tuning), work, "begin")

        work = jax.lax.while_loop(goes_on, advance, work)
        after, info = kernel.end(work, turn.state, tuning)
        check_state(kernel, "end", after, turn.state)
        ends = is_left & kernel.is_complete(work)
        at = jnp.where(ends, row + turn.num_made, len(turn.rows.statistics))
        stored = _store(turn.rows, Rows(pack(kernel, info, num_chains), after.position), at)
        state = jax.tree.map(lambda new, old: jnp.where(over_chains(ends, new), new, old), after, turn.state)
        return _Turn(state, work, info, ends, turn.num_made + ends, stored)

    own = jax.tree.map(lambda x: jnp.broadcast_to(x, num_chains) if x.ndim == 0 else x, state)
    none = jnp.zeros(num_chains, jnp.int32)
    work = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(begin, none, own)[1])
    info = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: kernel.end(work, own, tuning)[1]))
    last = jax.lax.while_loop(
        lambda turn: (turn.num_made < count).any(), take, _Turn(own, work, info, none == 0, none, rows)
    )
    shared = jax.tree.map(lambda x, old: x[0] if old.ndim == 0 else x, last.state, state)
    return shared, last.info, last.rows


def _store(rows: Rows, new: Rows, at: Int[Array, " chain"]) -> Rows:
    """Write the new values of each chain into row `at` of the buffers; drop those whose row is out of range."""
    chains = jnp.arange(len(at))
    return jax.tree.map(lambda old, x: old.at[at, chains].set(x, mode="drop", unique_indices=True), rows, new)


def no_rows(kernel: Kernel[Any, Any, Any, Any], position: Position, num_rows: int) -> Rows:
    """Return empty buffers for positions (chain, ...) like these."""
    num_chains = len(jax.tree.leaves(position)[0])
    statistics = jnp.zeros((num_rows, num_chains, len(kernel.statistics)), jnp.float64)
    return Rows(statistics, jax.tree.map(lambda x: jnp.zeros((num_rows, *x.shape), x.dtype), position))
