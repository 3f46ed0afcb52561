"""Draws in turns: the same as those of chains that wait for each other, for fewer gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.config.settings import Settings
from bayesmesh.kernels.base import Kernel, Position, Statistic, TakesTurns
from bayesmesh.sampling.program import turns as chain_turns
from bayesmesh.sampling.program.packed_statistics import label, unpack
from bayesmesh.sampling.program.turns import make_draws, no_rows
from kernel_options import kernels_of_any_target
from levels import groups_case

NUM_WARMUP, NUM_DRAWS = 30, 20
# Directions learnt from few points, and steps near the largest stable one, magnify the rounding that differs between meshes.
OPTIONS = {"num_warmup": NUM_WARMUP, "row_tile": 5, "is_optimised": False, "max_tree_depth": 4, "metric": "diagonal"}


# -- with lengths that are known ---------------------------------------------------------------------------------------


class Walk(NamedTuple):
    """Position, and the number of transitions."""

    position: Position
    log_prior: jax.Array
    log_likelihood: jax.Array
    num_steps: jax.Array


class Work(NamedTuple):
    """What is left of transitions, the number that they add, and how many gradients all chains have taken."""

    left: jax.Array
    added: jax.Array
    gradients: jax.Array


class Told(NamedTuple):
    """Info of a step."""

    lp: jax.Array
    log_likelihood: jax.Array
    n_steps: jax.Array
    gradients: jax.Array


def gradients_in_turns(lengths: Any) -> int:
    """Play the schedule of `program.turns` for lengths of transitions, (draw, chain); return the gradients of all chains."""
    import numpy as np

    num_draws, num_chains = lengths.shape
    made, left, total = np.zeros(num_chains, int), np.array(lengths[0]), 0
    while (made < num_draws).any():
        has_next = made + 1 < num_draws
        enough = max(1, -(-int(has_next.sum()) // 2))
        while (left > 0).any() and ((left == 0) & has_next).sum() < enough:
            left, total = np.maximum(left - 1, 0), total + 1
        ends = (left == 0) & (made < num_draws)
        made = made + ends
        for chain in np.flatnonzero(ends & (made < num_draws)):
            left[chain] = lengths[made[chain], chain]
    return total


def length_of(added: jax.Array) -> jax.Array:
    """Between 1 and 12 gradients, chosen by a random number."""
    return 1 + (12 * added**3).astype(jnp.int32)


class Counted(TakesTurns[Any, Any, Any, Any], Kernel[Any, Any, Any, Any]):
    """Adds random numbers; says how many gradients all chains have taken until then."""

    statistics: ClassVar[Mapping[str, Statistic]] = {name: Statistic("1", "Counted.") for name in Told._fields}

    def begin(self, key, state, target, tuning):
        added = jax.vmap(jax.random.uniform)(key)
        return Work(length_of(added), added, jnp.zeros(len(added), jnp.int32))

    def advance(self, key, work, state, target, tuning):
        return work._replace(left=jnp.maximum(work.left - 1, 0), gradients=work.gradients + 1)

    def renew(self, work, begun, renews):
        left, added = (jnp.where(renews, new, old) for new, old in zip(begun[:2], work[:2], strict=True))
        return Work(left, added, work.gradients)

    def is_complete(self, work):
        return work.left == 0

    def end(self, work, state, tuning):
        lp = work.added
        position = Position(state.position.shared + work.added[:, None], None)
        return Walk(position, lp, lp, state.num_steps + 1), Told(lp, lp, length_of(work.added), work.gradients)

    init = init_adaptation = adapt = tuning = state_axes = adaptation_axes = expected_gradients = None


@pytest.mark.parametrize(("num_draws", "row"), [(1, 3), (40, 5)])
def test_turns_take_the_gradients_of_their_schedule_and_store_every_draw(num_draws: int, row: int) -> None:
    kernel, first, num_chains, num_rows = Counted(Settings(), 0), 100, 6, 64
    zero = jnp.zeros(num_chains)
    state = Walk(Position(zero[:, None], None), zero, zero, jnp.asarray(7))
    keys = jax.random.split(jax.random.key(4), num_chains)
    given = no_rows(kernel, state.position, num_rows)
    count = jnp.int32(num_draws), jnp.int32(row)
    after, info, rows = jax.jit(
        lambda first, *count: make_draws(kernel, keys, state, None, None, given, first, *count)
    )(jnp.uint32(first), *count)
    # What chains that wait for each other would add.
    indices = first + jnp.arange(num_draws, dtype=jnp.uint32)
    keys_of_all = jax.vmap(lambda i: jax.vmap(lambda k: jax.random.fold_in(k, i))(keys))(indices)
    added = np.asarray(jax.vmap(jax.vmap(jax.random.uniform))(keys_of_all))
    made, kept = (
        slice(row, row + num_draws),
        unpack(np.asarray(rows.statistics), label(kernel, info, rows.statistics).like),
    )
    np.testing.assert_array_equal(kept["lp"][made], added)
    np.testing.assert_allclose(rows.position.shared[made, :, 0], np.cumsum(added, axis=0))
    np.testing.assert_allclose(after.position.shared[:, 0], added.sum(axis=0))
    assert after.num_steps == 7 + num_draws, "a number that chains share counts their draws"
    for values in (np.asarray(rows.statistics), np.asarray(rows.position.shared)):
        assert not np.delete(values, np.arange(row, row + num_draws), axis=0).any(), "other rows are left alone"
    lengths = np.asarray(length_of(added))
    assert kept["n_steps"].dtype == np.int32
    np.testing.assert_array_equal(kept["n_steps"][made], lengths)
    taken, waiting = int(np.asarray(info.gradients).max()), int(lengths.max(axis=1).sum())
    assert taken == gradients_in_turns(lengths)
    assert taken == waiting if num_draws == 1 else taken < 0.75 * waiting


# -- programs ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def waiting(build, make_case):
    """Statistics and draws of chains that wait for each other."""
    return build(groups_case(make_case), "nuts", takes_turns=False, **OPTIONS).run(NUM_DRAWS)


def test_draws_are_those_of_chains_that_wait(build, make_case, waiting) -> None:
    """To the last bit, warmup included, wherever calls end."""
    built = build(groups_case(make_case), "nuts", takes_turns=True, **OPTIONS)
    for run in (built.run(NUM_DRAWS), built.run(NUM_DRAWS, segment=7, is_through_host=True)):
        jax.tree.map(np.testing.assert_array_equal, vars(run), vars(waiting))
    lengths = waiting.statistics["n_steps"]
    assert (np.ptp(lengths, axis=1) > 0).any(), "chains have trajectories of unequal length"


@pytest.mark.parametrize(("mesh", "sharding"), [((1, 2), "named"), ((1, 3), "shard_map"), ((2, 1), "named")])
def test_devices_that_share_rows_or_chains_make_the_same_draws(build, make_case, waiting, mesh, sharding) -> None:
    built = build(groups_case(make_case), "nuts", mesh=mesh, sharding=sharding, takes_turns=True, **OPTIONS)
    run = built.run(NUM_DRAWS)
    for name, values in waiting.draws.items():
        np.testing.assert_allclose(run.draws[name], values, rtol=1e-6, atol=1e-7, err_msg=name)
    np.testing.assert_array_equal(run.statistics["n_steps"], waiting.statistics["n_steps"])


def test_programs_take_turns_where_a_gradient_is_long(make_case, make_program, monkeypatch) -> None:
    """And the kernel can, and no device would wait for another in every step."""

    def take_turns(kernel: str, mesh: tuple[int, int] = (1, 1)) -> bool:
        return make_program(groups_case(make_case), kernel, mesh=mesh).takes_turns

    assert not take_turns("nuts"), "compilation would take longer than the run"
    monkeypatch.setattr(chain_turns, "SHORT_SECONDS", 0.0)
    assert [name for name in kernels_of_any_target() if take_turns(name)] == ["nuts"]
    assert take_turns("nuts", (1, 2))
    assert take_turns("nuts", (2, 1))
    assert not take_turns("nuts", (2, 2))
