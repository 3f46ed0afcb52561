"""What is particular to NUTS."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Density, Position, Target
from bayesmesh.kernels.hamiltonian import tree
from bayesmesh.kernels.hamiltonian.metrics.identity import IdentityMetric
from bayesmesh.kernels.hamiltonian.trajectory import init_state
from bayesmesh.kernels.nuts import Nuts, NutsAdaptation, NutsTuning, Options

NUM_CHAINS = 50


class TwoWidths(Target):
    """A standard normal for half of the chains, and one with standard deviation 10 for the others."""

    mask = Position(None, None)

    def log_density(self, position: Position) -> Density:
        sd = jnp.where(jnp.arange(NUM_CHAINS) < NUM_CHAINS // 2, 1.0, 10.0)[:, None]
        value = -0.5 * jnp.sum((position.shared / sd) ** 2, axis=1)
        return Density(0 * value, value, Position(-position.shared / sd**2, None))


@pytest.fixture(scope="module")
def info():
    kernel, target = Nuts(Options(max_tree_depth=6, metric="identity"), 0), TwoWidths()
    start = jax.random.normal(jax.random.key(0), (NUM_CHAINS, 3), jnp.float64)
    tuning = HamiltonianTuning(jnp.asarray(0.2), (), NutsTuning(jnp.asarray(0.9), None))
    keys = jax.random.split(jax.random.key(1), NUM_CHAINS)
    step = jax.jit(lambda q: kernel.step(keys, kernel.init(keys, q, target), target, tuning)[1])
    return step(Position(start, None))


def test_trajectories_end_where_they_turn(info) -> None:
    """About half a period, pi times the standard deviation, and at most the allowed depth."""
    narrow, wide = np.split(0.2 * np.asarray(info.n_steps), 2)
    assert 0.5 * np.pi < narrow.mean() < 2 * np.pi
    np.testing.assert_allclose(wide, 0.2 * 63)
    assert (np.asarray(info.tree_depth)[NUM_CHAINS // 2 :] == 6).all()


def test_a_chain_counts_its_own_gradients(info) -> None:
    assert info.n_steps.max() == 63
    assert (info.n_steps < 2 ** (np.asarray(info.tree_depth) + 1)).all()
    assert (np.asarray(info.acceptance_rate) > 0.95).all()


@pytest.mark.parametrize("direction", [0.1, 0.9])
def test_a_direction_has_a_random_number_of_its_own(direction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that says whether a part is drawn from says the opposite here, and that of a leaf says neither."""
    numbers = jnp.asarray([direction, 0.5, 1 - direction])
    monkeypatch.setattr(tree, "_uniform", lambda key, number: jnp.broadcast_to(numbers, (*number.shape, 3)))
    target, start = TwoWidths(), Position(jnp.ones((NUM_CHAINS, 3)), None)
    state, step_size = init_state(start, target), jnp.asarray(0.01)
    grown = jax.lax.while_loop(
        lambda trees: ~trees.is_done.all(),
        lambda trees: tree.grow(jnp.zeros(NUM_CHAINS), trees, state, target, IdentityMetric(), (), step_size, 3),
        tree.begin_tree(state, start, IdentityMetric(), (), 3),
    )
    assert (grown.depth == 3).all()
    is_forward = np.asarray(grown.right.position.shared[:, 0] > 1)
    is_backward = np.asarray(grown.left.position.shared[:, 0] < 1)
    assert (is_forward == (direction < 0.5)).all()
    assert (is_backward == (direction > 0.5)).all()


def test_divergences_late_in_warmup_halve_the_distance_of_the_target_acceptance_from_one(info) -> None:
    """One of 1,300 trajectories; not those of lost chains, of first iterations of a window, or before the metric has settled."""
    kernel, target = Nuts(Options(metric="identity"), 500), TwoWidths()
    state = kernel.init(
        jax.random.split(jax.random.key(0), NUM_CHAINS), Position(jnp.ones((NUM_CHAINS, 3)), None), target
    )
    diverged = info._replace(diverging=jnp.arange(NUM_CHAINS) < 8)
    begun = kernel.init_adaptation(state, target)

    def count(num_steps: int, num_lost: int, num_updates: int) -> float:
        before, lost = state._replace(num_steps=jnp.asarray(num_steps)), jnp.arange(NUM_CHAINS) < num_lost
        search = begun.step_size._replace(count=jnp.full(NUM_CHAINS, float(num_updates)))
        share = kernel.adapt_extra(begun._replace(step_size=search), before, diverged, ~lost).share
        return float(share * NUM_CHAINS * 325)

    found = [count(*each) for each in ((174, 0, 90), (175, 0, 10), (499, 3, 99), (499, 0, 9))]
    np.testing.assert_allclose(found, [0, 8, 5, 0])
    targets = [
        kernel.target_acceptance(NutsAdaptation(jnp.asarray(share), None)) for share in (0.0, 1 / 2001, 1 / 1300)
    ]
    np.testing.assert_allclose(targets, [0.9, 0.9, 0.95])
