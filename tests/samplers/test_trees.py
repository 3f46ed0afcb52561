"""No-U-Turn trees against a plain recursive reading of the paper, for the same momenta and directions.

A tree that stops one subtree too early, or looks at one stretch too many, still has nearly the right moments: only its
size shows it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from bayesmesh.kernels.base import Position
from bayesmesh.kernels.hamiltonian import tree as trajectory_tree
from bayesmesh.kernels.hamiltonian.metrics import load_metric
from bayesmesh.kernels.hamiltonian.trajectory import init_state
from bayesmesh.kernels.targets import FunctionTarget

NUM_CHAINS, MAX_DEPTH, STEP_SIZE = 200, 6, 0.3
PRECISION = np.array([4.0, 1.0, 0.05])


def orbit(q: np.ndarray, p: np.ndarray, step_size: float, length: int) -> np.ndarray:
    """Momenta after 1 to `length` leapfrog steps on the normal with these precisions."""
    momenta = []
    for _ in range(length):
        p = p - 0.5 * step_size * PRECISION * q
        q = q + step_size * p
        p = p - 0.5 * step_size * PRECISION * q
        momenta.append(p)
    return np.array(momenta)


def turns(momenta: np.ndarray) -> bool:
    """The generalised criterion (Betancourt 2017, appendix A.4.2), with half weights at the ends."""
    middle = momenta.sum(axis=0) - 0.5 * (momenta[0] + momenta[-1])
    return bool(momenta[0] @ middle <= 0 or momenta[-1] @ middle <= 0)


def is_turning(first: np.ndarray, second: np.ndarray) -> bool:
    """Two halves together, and each with the nearest point of the other."""
    both = np.concatenate([first, second])
    return turns(both) or turns(both[: len(first) + 1]) or turns(both[len(first) - 1 :])


def first_turn(momenta: np.ndarray) -> int:
    """The number of points, in the order in which they are made, after which some balanced subtree is known to turn; 0 if none."""
    if len(momenta) < 2:
        return 0
    half = len(momenta) // 2
    if found := first_turn(momenta[:half]):
        return found
    if turns(momenta[: half + 1]):
        return half + 1
    if found := first_turn(momenta[half:]):
        return half + found
    return len(momenta) if is_turning(momenta[:half], momenta[half:]) else 0


def grow(q: np.ndarray, p: np.ndarray, is_forward: list[bool]) -> tuple[int, int]:
    """Return leapfrog steps and doublings of the tree of one chain."""
    length = 2**MAX_DEPTH
    later, earlier = orbit(q, p, STEP_SIZE, length), orbit(q, p, -STEP_SIZE, length)
    whole, num_later, num_earlier, count = p[None], 0, 0, 0
    for depth in range(MAX_DEPTH):
        size = 2**depth
        if is_forward[depth]:
            part, num_later = later[num_later : num_later + size], num_later + size
        else:
            part, num_earlier = earlier[num_earlier : num_earlier + size], num_earlier + size
        if turn := first_turn(part):
            return count + turn, depth
        count += size
        halves = (whole, part) if is_forward[depth] else (part[::-1], whole)
        whole = np.concatenate(halves)
        if is_turning(*halves):
            return count, depth + 1
    return count, MAX_DEPTH


def test_no_number_is_used_twice() -> None:
    """Of all leaves of a tree, and of all chains."""
    keys = jax.random.split(jax.random.key(6), NUM_CHAINS)
    numbers = [np.asarray(trajectory_tree._uniform(keys, jnp.full(NUM_CHAINS, n))) for n in range(2**MAX_DEPTH)]
    assert len(np.unique(numbers)) == NUM_CHAINS * 3 * 2**MAX_DEPTH


def test_trees_have_the_size_of_plain_recursive_ones(record) -> None:
    generator = np.random.default_rng(5)
    q = generator.standard_normal((NUM_CHAINS, 3)) / np.sqrt(PRECISION)
    p = generator.standard_normal((NUM_CHAINS, 3))
    keys = jax.random.split(jax.random.key(6), NUM_CHAINS)
    target = FunctionTarget(lambda x: -0.5 * jnp.sum(PRECISION * x**2))

    @jax.jit
    def run(q: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = init_state(Position(q, None), target)
        step_size = jnp.asarray(STEP_SIZE)
        metric = load_metric("identity")
        grown = jax.lax.while_loop(
            lambda trees: ~trees.is_done.all(),
            lambda trees: trajectory_tree.grow(keys, trees, state, target, metric, (), step_size, MAX_DEPTH),
            trajectory_tree.begin_tree(state, Position(p, None), metric, (), MAX_DEPTH),
        )
        return grown.count, grown.depth

    count, depth = map(np.asarray, run(jnp.asarray(q), jnp.asarray(p)))
    # A direction is drawn with the first point of its part: after 0, 1, 3, 7, ... points.
    drawn = [
        np.asarray(trajectory_tree._uniform(keys, jnp.full(NUM_CHAINS, 2**d - 1)))[:, 0] < 0.5 for d in range(MAX_DEPTH)
    ]
    expected = [grow(q[i], p[i], [bool(d[i]) for d in drawn]) for i in range(NUM_CHAINS)]
    assert len(set(expected)) > 10, "trees of many sizes"
    different = sum((int(c), int(d)) != e for c, d, e in zip(count, depth, expected, strict=True))
    record(f"{different} of {NUM_CHAINS} trees of another size", "none")
    assert different == 0
