"""One trajectory of the No-U-Turn sampler for a batch of chains, in one flat loop.

A tree of leapfrog steps doubles, forwards or backwards in time, until its ends move towards each other (Hoffman and
Gelman 2014, JMLR 15); the draw is taken from it with multinomial weights (Betancourt 2017, arXiv:1701.02434, appendix
A.3). Subtrees are checked as they grow, with as many stored points as the tree is deep (Phan, Pradhan and Jankowiak
2019, arXiv:1912.11554, appendix A).

Chains are in lock step by leapfrog steps and not by trees or subtrees: each is wherever its own tree is, and a
transition takes as many gradients as its longest trajectory. A chain that is done keeps its state meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import LogDensityFn, Position
from bayesmesh.kernels.hamiltonian.trajectory import DIVERGENCE_THRESHOLD, HamiltonianState, batch_dot, move

__all__ = ["Point", "Tree", "grow_tree"]


class Point(NamedTuple):
    """A point of phase space of every chain: position, momentum, gradient (chain, ...), log densities (chain,)."""

    position: Position
    momentum: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    gradient: Position


class Part(NamedTuple):
    """A tree, or the subtree that it grows by.

    Attributes:
        drawn: the point drawn from it.
        log_weight: (chain,) float64, log of the summed weights exp(-energy error), -inf when it is empty.
        momentum: sum of all momenta in it, like a position.
    """

    drawn: Point
    log_weight: jax.Array
    momentum: Position


class Tree(NamedTuple):
    """The trees of all chains while they grow.

    Attributes:
        left, right: its ends in time.
        whole: the tree as far as it is accepted.
        part: the subtree that grows at one end.
        depth: (chain,) int32, doublings made.
        leaf: (chain,) int32, points in `part`.
        is_forward: (chain,) whether `part` grows at the right end.
        saved: momentum at, and sum of momenta up to and with, some left ends of subtrees of `part`; (slot, chain, ...).
        is_done, diverging, accepted: (chain,); the last says that the draw is not the start.
        acceptance_sum: (chain,) float64, Metropolis acceptance probabilities of all points, summed.
        count: (chain,) int32, points in all, without the start.
        num_gradients: () int32.
    """

    left: Point
    right: Point
    whole: Part
    part: Part
    depth: jax.Array
    leaf: jax.Array
    is_forward: jax.Array
    saved: tuple[Position, Position]
    is_done: jax.Array
    diverging: jax.Array
    accepted: jax.Array
    acceptance_sum: jax.Array
    count: jax.Array
    num_gradients: jax.Array


def grow_tree(
    key: jax.Array,
    state: HamiltonianState,
    momentum: Position,
    scale: Position,
    step_size: jax.Array,
    max_depth: int,
    log_density_fn: LogDensityFn,
) -> Tree:
    """Grow the tree of every chain to its end.

    Args:
        key: (chain,) typed keys.
        state: where the chains are.
        momentum: with which they start, in units in which it is standard normal.
        scale: name -> (...), no chain axis.
        step_size: () float64.
        max_depth: most doublings; the longest trajectory has ``2**max_depth - 1`` steps.
        log_density_fn: the target.

    Returns:
        The tree; ``whole.drawn`` is the next point of the chain.
    """
    start = Point(state.position, momentum, state.log_prior, state.log_likelihood, state.gradient)

    def step(tree: Tree) -> Tree:
        uniform = _uniform(key, tree.count + 1)
        end = _pick(tree.is_forward, tree.right, tree.left)
        point = _leapfrog(end, tree.is_forward, scale, step_size, log_density_fn)
        log_weight = _log_weight(start, point)
        grown = _add_leaf(tree, point, log_weight, uniform[:, 0])
        merged = _merge(grown, uniform[:, 1], uniform[:, 2], max_depth)
        return _keep_done(tree, merged)

    return jax.lax.while_loop(lambda tree: ~tree.is_done.all(), step, _seedling(key, start, max_depth))


def _uniform(key: jax.Array, number: jax.Array) -> jax.Array:
    """Three uniform numbers of each chain for its own point `number`, (chain, 3) float64."""
    return jax.vmap(lambda k, n: jax.random.uniform(jax.random.fold_in(k, n), (3,), jnp.float64))(key, number)


def _seedling(key: jax.Array, start: Point, max_depth: int) -> Tree:
    """A tree of one point, and an empty part at one of its ends."""
    num_chains = start.log_prior.shape
    zero, none = jnp.zeros(num_chains, jnp.int32), jnp.zeros(num_chains, bool)
    slots = {k: jnp.zeros((max(1, max_depth - 1), *v.shape), v.dtype) for k, v in start.momentum.items()}
    weight = jnp.zeros(num_chains, jnp.float64)
    whole = Part(start, weight, start.momentum)
    part = Part(start, weight - jnp.inf, jax.tree.map(jnp.zeros_like, start.momentum))
    is_forward = _uniform(key, zero)[:, 2] < 0.5
    return Tree(
        start, start, whole, part, zero, zero, is_forward, (slots, slots), none, none, none, weight, zero,
        jnp.zeros((), jnp.int32),
    )  # fmt: skip


def _leapfrog(
    end: Point, is_forward: jax.Array, scale: Position, step_size: jax.Array, log_density_fn: LogDensityFn
) -> Point:
    """One step away from the tree; backwards in time is forwards with the momentum turned round."""

    def turned(momentum: Position) -> Position:
        return {k: jnp.where(_over(is_forward, p), p, -p) for k, p in momentum.items()}

    begin = HamiltonianState(
        end.position, end.log_prior, end.log_likelihood, end.gradient, jnp.zeros((), jnp.int32)
    )  # fmt: skip
    one = jnp.ones((), jnp.int32)
    at, momentum = move(begin, turned(end.momentum), scale, step_size, one, log_density_fn)
    return Point(at.position, turned(momentum), at.log_prior, at.log_likelihood, at.gradient)


def _log_weight(start: Point, point: Point) -> jax.Array:
    """Return minus the energy error, (chain,) float64; -inf where it is not a number."""
    # Prior and likelihood change separately: their difference is small where each of them is large.
    log_ratio = (
        (point.log_prior - start.log_prior)
        + (point.log_likelihood - start.log_likelihood)
        + 0.5 * (batch_dot(start.momentum, start.momentum) - batch_dot(point.momentum, point.momentum))
    )
    return jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)


def _add_leaf(tree: Tree, point: Point, log_weight: jax.Array, uniform: jax.Array) -> Tree:
    """Add a point to the part; a part that turns or diverges ends the tree, and nothing is drawn from it."""
    part_weight = jnp.logaddexp(tree.part.log_weight, log_weight)
    takes = jnp.log(uniform) < log_weight - part_weight
    momentum = jax.tree.map(jnp.add, tree.part.momentum, point.momentum)
    saved, is_turning = _check_subtrees(tree.saved, tree.leaf, point.momentum, momentum)
    diverging = -log_weight > DIVERGENCE_THRESHOLD
    return tree._replace(
        left=_pick(tree.is_forward, tree.left, point),
        right=_pick(tree.is_forward, point, tree.right),
        part=Part(_pick(takes, point, tree.part.drawn), part_weight, momentum),
        leaf=tree.leaf + 1,
        saved=saved,
        is_done=is_turning | diverging,
        diverging=diverging,
        acceptance_sum=tree.acceptance_sum + jnp.exp(jnp.minimum(log_weight, 0.0)),
        count=tree.count + 1,
        num_gradients=tree.num_gradients + 1,
    )


def _check_subtrees(
    saved: tuple[Position, Position], leaf: jax.Array, momentum: Position, total: Position
) -> tuple[tuple[Position, Position], jax.Array]:
    """Whether a balanced subtree that ends with point number `leaf` of the part turns; saves what later ones need.

    An even point begins subtrees and is kept in the slot of its number's ones, the last not counted. An odd point ends
    as many subtrees as its number has ones at the end; these begin at the newest slots.
    """
    num_slots = next(iter(saved[0].values())).shape[0]
    slot = jnp.arange(num_slots)[:, None]
    newest = jax.lax.population_count(leaf >> 1)
    num_ended = jax.lax.population_count(leaf ^ (leaf + 1)) - 1
    is_even = leaf % 2 == 0
    writes = is_even & (slot == newest)
    is_ended = ~is_even & (slot <= newest) & (slot > newest - num_ended)

    turning = jax.vmap(
        lambda first, before: _is_turning(
            first, momentum, {k: total[k] - before[k] + first[k] for k in total}
        )
    )(*saved)  # fmt: skip
    momenta, sums = (
        {k: jnp.where(_over(writes, old[k]), new[k], old[k]) for k in new}
        for old, new in zip(saved, (momentum, total), strict=True)
    )
    return (momenta, sums), (turning & is_ended).any(axis=0)


def _is_turning(first: Position, last: Position, total: Position) -> jax.Array:
    """Whether the ends of a stretch move towards each other, (chain,): its summed momentum against that of an end."""
    middle = {k: total[k] - 0.5 * (first[k] + last[k]) for k in total}
    return (batch_dot(first, middle) <= 0) | (batch_dot(last, middle) <= 0)


def _merge(tree: Tree, uniform: jax.Array, direction: jax.Array, max_depth: int) -> Tree:
    """Where a part is whole, make it part of the tree, and begin the next one."""
    is_whole = ~tree.is_done & (tree.leaf == 1 << tree.depth)
    # Biased towards the new part, which is farther away; the weights of the two make it exact.
    takes = is_whole & (jnp.log(uniform) < tree.part.log_weight - tree.whole.log_weight)
    momentum = jax.tree.map(jnp.add, tree.whole.momentum, tree.part.momentum)
    ends = _is_turning(tree.left.momentum, tree.right.momentum, momentum) | (tree.depth + 1 == max_depth)
    whole = Part(
        _pick(takes, tree.part.drawn, tree.whole.drawn),
        jnp.where(is_whole, jnp.logaddexp(tree.whole.log_weight, tree.part.log_weight), tree.whole.log_weight),
        _pick(is_whole, momentum, tree.whole.momentum),
    )
    nothing = jax.tree.map(jnp.zeros_like, momentum)
    part = tree.part._replace(
        log_weight=jnp.where(is_whole, -jnp.inf, tree.part.log_weight),
        momentum=_pick(is_whole, nothing, tree.part.momentum),
    )
    return tree._replace(
        whole=whole,
        part=part,
        depth=tree.depth + is_whole,
        leaf=jnp.where(is_whole, 0, tree.leaf),
        is_forward=jnp.where(is_whole, direction < 0.5, tree.is_forward),
        is_done=tree.is_done | (is_whole & ends),
        accepted=tree.accepted | takes,
    )


def _keep_done(before: Tree, after: Tree) -> Tree:
    """Leave the tree of a chain that was done as it was; only gradients are counted on."""
    is_done = before.is_done

    def keep(old: jax.Array, new: jax.Array) -> jax.Array:
        return jnp.where(_over(is_done, old), old, new)

    kept = {
        name: jax.tree.map(keep, getattr(before, name), getattr(after, name))
        for name in Tree._fields
        if name not in ("saved", "num_gradients")
    }
    # Nothing reads what a tree that is done has saved.
    return Tree(**kept, saved=after.saved, num_gradients=after.num_gradients)


def _pick[Arrays: (Point, Position)](is_first: jax.Array, one: Arrays, other: Arrays) -> Arrays:
    """Choose between two trees of arrays (chain, ...) by chain."""
    chosen: Arrays = jax.tree.map(lambda a, b: jnp.where(_over(is_first, a), a, b), one, other)
    return chosen


def _over(mask: jax.Array, like: jax.Array) -> jax.Array:
    """Append axes of length 1 until a mask broadcasts over an array."""
    return mask.reshape(mask.shape + (1,) * (like.ndim - mask.ndim))
