"""One trajectory of the No-U-Turn sampler for a batch of chains, step by step.

A tree of leapfrog or split steps doubles, forwards or backwards in time, until its ends move towards each other (Hoffman and
Gelman 2014, JMLR 15); the draw is taken from it with multinomial weights (Betancourt 2017, arXiv:1701.02434, appendix
A.3). Subtrees are checked as they grow, storing as many points as the tree is deep (Phan, Pradhan and Jankowiak 2019,
arXiv:1912.11554, appendix A). Of each, the whole is checked, and each half with the nearest point of the other: a normal
whose period fits the number of steps would turn unseen between the sizes of two trees (Stan since 2.21, whose manual calls them
additional checks across subtrees).

Chains take steps together, whichever trees or subtrees they are in. A complete tree does not change: its chain
waits for the others, or starts its next tree (`sampling/program/turns.py`).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from bayesmesh.kernels.base import Position, Target, keep_computed, map_parts
from bayesmesh.kernels.hamiltonian import trajectory
from bayesmesh.kernels.hamiltonian.metrics.base import Metric
from bayesmesh.kernels.hamiltonian.random_numbers import Stream, uniform
from bayesmesh.kernels.hamiltonian.trajectory import HamiltonianState, Normal, batch_dot, over_chains


class End(NamedTuple):
    """An end of a tree in time, where the next leapfrog step begins: three positions (chain, ...).

    The force is A^T times the gradient.
    """

    position: Position
    momentum: Position
    force: Position


class Draw(NamedTuple):
    """A point drawn from a tree: position and gradient, and (chain,) float64 log densities and kinetic energy."""

    position: Position
    gradient: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    kinetic: jax.Array


class Part(NamedTuple):
    """A tree, or the subtree by which it grows.

    Attributes:
        drawn: the point drawn from it.
        log_weight: (chain,) float64, log of the summed weights exp(-energy error), -inf when it is empty.
        momentum: sum of all momenta in it, like a position.
    """

    drawn: Draw
    log_weight: jax.Array
    momentum: Position


class Saved(NamedTuple):
    """What is kept of the points at which subtrees begin in time, (slot, chain, ...) each.

    Attributes:
        momentum: at the point.
        total: sum of momenta of the part, up to and including the point.
        before: momentum at the point before it, which may be an end of the tree that the part extends.
    """

    momentum: Position
    total: Position
    before: Position


class Tree(NamedTuple):
    """The trees of all chains while they grow.

    Attributes:
        momentum, kinetic: at the start; like a position, and (chain,) float64.
        left, right: its ends in time.
        whole: the tree as far as it is accepted.
        part: the subtree that grows at one end.
        depth: (chain,) int32, doublings made.
        leaf: (chain,) int32, points in `part`.
        is_forward: (chain,) whether `part` grows at the right end; chosen when it begins.
        saved: points of `part` at which subtrees begin.
        is_done, diverging, accepted: (chain,); accepted if the draw is not the start.
        acceptance_sum: (chain,) float64, sum of the Metropolis acceptance probabilities of all points.
        count: (chain,) int32, total number of points, without the start.
    """

    momentum: Position
    kinetic: jax.Array
    left: End
    right: End
    whole: Part
    part: Part
    depth: jax.Array
    leaf: jax.Array
    is_forward: jax.Array
    saved: Saved
    is_done: jax.Array
    diverging: jax.Array
    accepted: jax.Array
    acceptance_sum: jax.Array
    count: jax.Array  # type: ignore[assignment]  # the field shadows tuple.count, which nothing calls


def begin_tree[Data](
    state: HamiltonianState, momentum: Position, metric: Metric[Data, Any], data: Data, max_depth: int
) -> Tree:
    """Return trees without points.

    Args:
        state: where the chains are.
        momentum: their initial momentum, standard normal in the coordinates of the metric.
        metric: the kind of metric.
        data: its arrays.
        max_depth: most doublings; the longest trajectory has ``2**max_depth - 1`` steps.
    """
    slots = jax.tree.map(lambda p: jnp.zeros((max(1, max_depth - 1), *p.shape), p.dtype), momentum)
    end = End(state.position, momentum, metric.whiten_gradient(data, state.gradient))
    kinetic = 0.5 * batch_dot(momentum, momentum)
    start = Draw(state.position, state.gradient, state.log_prior, state.log_likelihood, kinetic)
    zero, none, weight = (jnp.zeros(kinetic.shape, dtype) for dtype in (jnp.int32, bool, jnp.float64))
    whole = Part(start, weight, momentum)
    # The first point sets the ends of a part.
    part = Part(start, weight - jnp.inf, jax.tree.map(jnp.zeros_like, momentum))
    return Tree(
        momentum,
        kinetic,
        end,
        end,
        whole,
        part,
        zero,
        zero,
        none,
        Saved(slots, slots, slots),
        none,
        none,
        none,
        weight,
        zero,
    )


def grow[Data](
    key: jax.Array,
    tree: Tree,
    state: HamiltonianState,
    target: Target,
    metric: Metric[Data, Any],
    data: Data,
    step_size: jax.Array,
    max_depth: int,
    normal: Normal | None = None,
) -> Tree:
    """Take one step in every incomplete tree, at the cost of one gradient.

    Args:
        key: (chain,) typed keys, the same for all steps of a tree.
        tree: the trees, from `begin_tree` or this function.
        state: where they began.
        target: the log density.
        metric: the kind of metric.
        data: its arrays.
        step_size: () or (chain,) float64.
        max_depth: see `begin_tree`.
        normal: that about which steps turn; None for leapfrog steps.
    """
    start = Draw(state.position, state.gradient, state.log_prior, state.log_likelihood, tree.kinetic)
    numbers = _uniform(key, tree.count)
    tree = tree._replace(is_forward=jnp.where(tree.leaf == 0, numbers[:, 0] < 0.5, tree.is_forward))
    end = pick(tree.is_forward, tree.right, tree.left)
    # A step reads only the position and the force at its beginning.
    begin = state._replace(position=end.position)
    # Backwards in time, the step size is negative.
    signed = jnp.where(tree.is_forward, step_size, -step_size)
    step = trajectory.leapfrog if normal is None else functools.partial(trajectory.turn, normal=normal)
    at, moved, force = step(
        metric, data, target=target, step_size=signed, at=begin, momentum=end.momentum, force=end.force
    )
    point = Draw(at.position, at.gradient, at.log_prior, at.log_likelihood, 0.5 * batch_dot(moved, moved))
    grown = _add_leaf(
        tree, End(at.position, moved, force), point, _log_weight(start, point), numbers[:, 1], end.momentum
    )
    return _merge(grown, numbers[:, 2], max_depth)


def _uniform(key: jax.Array, number: jax.Array) -> jax.Array:
    """Return three uniform numbers for each chain's own point `number`, (chain, 3) float64."""
    index = 3 * number.astype(jnp.uint32)[:, None] + jnp.arange(3, dtype=jnp.uint32)[None]
    return uniform(key, Stream.TREE, index)


def _log_weight(start: Draw, point: Draw) -> jax.Array:
    """Return minus the energy error, (chain,) float64; -inf where it is not a number."""
    # Difference prior and likelihood separately: each difference is small even if the terms are large.
    log_ratio = (
        (point.log_prior - start.log_prior)
        + (point.log_likelihood - start.log_likelihood)
        + (start.kinetic - point.kinetic)
    )
    return jnp.where(jnp.isfinite(log_ratio), log_ratio, -jnp.inf)


def _add_leaf(tree: Tree, end: End, point: Draw, log_weight: jax.Array, number: jax.Array, before: Position) -> Tree:
    """Add a point, with the momentum of the one before it, to the part; a part that turns or diverges ends the tree, and nothing is drawn from it.

    A tree that is done does not change; nothing reads what it saves afterwards.
    """
    grows = ~tree.is_done
    part_weight = jnp.logaddexp(tree.part.log_weight, log_weight)
    takes = grows & (jnp.log(number) < log_weight - part_weight)
    grows, takes = keep_computed((grows, takes))
    momentum = jax.tree.map(jnp.add, tree.part.momentum, end.momentum)
    saved, is_turning = _check_subtrees(tree.saved, tree.leaf, Saved(end.momentum, momentum, before))
    diverging = -log_weight > trajectory.DIVERGENCE_THRESHOLD
    acceptance = jnp.exp(jnp.minimum(log_weight, 0.0))
    return tree._replace(
        left=pick(grows & ~tree.is_forward, end, tree.left),
        right=pick(grows & tree.is_forward, end, tree.right),
        part=Part(pick(takes, point, tree.part.drawn), part_weight, momentum),
        leaf=tree.leaf + grows,
        saved=saved,
        is_done=tree.is_done | is_turning | diverging,
        diverging=tree.diverging | (grows & diverging),
        acceptance_sum=tree.acceptance_sum + jnp.where(grows, acceptance, 0.0),
        count=tree.count + grows,
    )


def _check_subtrees(saved: Saved, leaf: jax.Array, new: Saved) -> tuple[Saved, jax.Array]:
    """Return what later points need, and whether a balanced subtree turns that ends with point number `leaf` of the part, or its first half.

    An even point begins subtrees and is saved in the slot given by the number of one bits in its number, without the last
    bit. An odd point ends as many subtrees as its number has trailing one bits; these begin at the newest slots, each at the
    one before that of its second half. An even point begins one second half, of the subtree that begins at the newest slot.
    """
    slot = jnp.arange(jax.tree.leaves(saved)[0].shape[0])[:, None]
    newest = jax.lax.population_count(leaf >> 1)[None]
    num_ended = (jax.lax.population_count(leaf ^ (leaf + 1)) - 1)[None]
    is_even = (leaf % 2 == 0)[None]
    is_ended = ~is_even & (slot <= newest) & (slot > newest - num_ended)
    # Where an even point begins a second half, the first half with this point is a stretch like those that end.
    is_half = is_even & (slot == newest - 1)

    def to_end(first: Position, before: Position) -> jax.Array:
        since = map_parts(lambda total, b, f: total - b + f, new.total, before, first)
        return _is_turning(first, new.momentum, since)

    whole = jax.vmap(to_end)(saved.momentum, saved.total)
    # The point before the second half with that half.
    without = map_parts(jnp.subtract, saved.total, saved.momentum)
    second = jax.vmap(to_end)(saved.before, without)
    is_second = is_ended & (slot > newest - num_ended + 1)
    is_turning = (whole & (is_ended | is_half)) | (second & is_second)

    def save(slots: Position, own: Position) -> Position:
        return map_parts(
            lambda old, x: jnp.where(over_chains(is_even & (slot == newest), old), x[None], old), slots, own
        )

    return Saved(*(save(old, own) for old, own in zip(saved, new, strict=True))), is_turning.any(axis=0)


def _is_turning(first: Position, last: Position, total: Position) -> jax.Array:
    """Return whether the ends of a stretch move towards each other, (chain,), from its summed momentum and those of its ends."""
    middle = jax.tree.map(lambda t, a, b: t - 0.5 * (a + b), total, first, last)
    return (batch_dot(first, middle) <= 0) | (batch_dot(last, middle) <= 0)


def _merge(tree: Tree, number: jax.Array, max_depth: int) -> Tree:
    """Merge complete parts into their trees, and begin the next parts."""
    is_whole = ~tree.is_done & (tree.leaf == 1 << tree.depth)
    # Biased progressive sampling favours the new part, which is farther away; the weights keep it exact.
    takes = is_whole & (jnp.log(number) < tree.part.log_weight - tree.whole.log_weight)
    is_whole, takes = keep_computed((is_whole, takes))
    momentum = jax.tree.map(jnp.add, tree.whole.momentum, tree.part.momentum)
    # Reversed in time, all products keep their signs, so either end may come first.
    far, newest = (pick(tree.is_forward, *ends) for ends in ((tree.left, tree.right), (tree.right, tree.left)))
    first, near = (jax.tree.map(lambda x: x[0], each) for each in (tree.saved.momentum, tree.saved.before))
    ends = _is_turning(tree.left.momentum, tree.right.momentum, momentum) | (tree.depth + 1 == max_depth)
    ends |= _is_turning(far.momentum, first, jax.tree.map(jnp.add, tree.whole.momentum, first))
    ends |= _is_turning(near, newest.momentum, jax.tree.map(jnp.add, tree.part.momentum, near))
    whole = Part(
        pick(takes, tree.part.drawn, tree.whole.drawn),
        jnp.where(is_whole, jnp.logaddexp(tree.whole.log_weight, tree.part.log_weight), tree.whole.log_weight),
        pick(is_whole, momentum, tree.whole.momentum),
    )
    part = tree.part._replace(
        log_weight=jnp.where(is_whole, -jnp.inf, tree.part.log_weight),
        momentum=pick(is_whole, jax.tree.map(jnp.zeros_like, momentum), tree.part.momentum),
    )
    return tree._replace(
        whole=whole,
        part=part,
        depth=tree.depth + is_whole,
        leaf=jnp.where(is_whole, 0, tree.leaf),
        is_done=tree.is_done | (is_whole & ends),
        accepted=tree.accepted | takes,
    )


def pick[Arrays: (Draw, End, Position, Tree)](is_first: jax.Array, one: Arrays, other: Arrays) -> Arrays:
    """Choose between two trees of arrays (chain, ...) by chain."""
    return jax.tree.map(lambda a, b: jnp.where(over_chains(is_first, a), a, b), one, other)
