"""Transitions leave their target as it is, and every defect seeded into them is seen.

50,000 exact draws of a 3-dimensional target make 20 transitions each; every margin and projection must still be the
target's. The replicates are independent, so the p-values are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.registry import component_path, list_components, load_component, read_options
from bayesmesh.kernels import chees, hmc, nuts
from bayesmesh.kernels.base import Density, Kernel, Position
from bayesmesh.kernels.hamiltonian import trajectory, tree

NUM_CHAINS, NUM_STEPS, ALPHA = 50_000, 20, 1e-6
CORRELATION = 0.8


def log_density(position: Position) -> Density:
    """A correlated pair of normals `x` (2,), called prior, and the log of a Gamma(2) variate `y` (), called likelihood."""

    def parts(q: Position) -> tuple[jax.Array, jax.Array]:
        a, b = q["x"]
        prior = -0.5 * (a**2 - 2 * CORRELATION * a * b + b**2) / (1 - CORRELATION**2)
        return prior, 2 * q["y"] - jnp.exp(q["y"])

    def total(q: Position) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        prior, likelihood = parts(q)
        return prior + likelihood, (prior, likelihood)

    gradient, (prior, likelihood) = jax.vmap(jax.grad(total, has_aux=True))(position)
    return Density(prior.astype(jnp.float64), likelihood.astype(jnp.float64), gradient)


def draw(num_chains: int, seed: int) -> Position:
    generator = np.random.default_rng(seed)
    a, noise = generator.standard_normal((2, num_chains))
    b = CORRELATION * a + math.sqrt(1 - CORRELATION**2) * noise
    y = np.log(generator.gamma(2.0, size=num_chains))
    return {"x": jnp.asarray(np.column_stack([a, b])), "y": jnp.asarray(y)}


def key_at(iteration: Any, num_chains: int) -> jax.Array:
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(17), c))(jnp.arange(num_chains))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def make(kernel_class: type[Kernel], name: str, **options: Any) -> Kernel:
    return kernel_class(read_options(component_path("kernel", name))(**options), num_warmup=200)


def tune(kernel: Kernel, num_chains: int = 16) -> Any:
    """Tuning after a short warmup of a few chains, begun in exact draws."""

    def run(position: Position) -> Any:
        ones = jax.tree.map(lambda x: jnp.ones_like(x[0]), position)
        state = kernel.warmup_init(kernel.init(position, log_density), ones)

        def step(i: jax.Array, state: Any) -> Any:
            return kernel.warmup_step(key_at(i, num_chains), state, log_density)[0]

        return kernel.warmup_finish(jax.lax.fori_loop(0, kernel.num_warmup, step, state))[1]

    return jax.jit(run)(draw(num_chains, seed=1))


def transition(
    kernel: Kernel,
    tuning: Any,
    density_fn: Callable[[Position], Density] = log_density,
    num_chains: int = NUM_CHAINS,
) -> tuple[Position, float]:
    """Positions after `NUM_STEPS` transitions of many chains, and their mean acceptance."""

    def run(position: Position) -> Any:
        def step(i: jax.Array, carry: Any) -> Any:
            state, info = kernel.step(key_at(i, num_chains), carry[0], density_fn, tuning)
            return state, carry[1] + info.acceptance_rate.mean() / NUM_STEPS

        begin = (kernel.init(position, density_fn), jnp.zeros(()))
        state, acceptance = jax.lax.fori_loop(0, NUM_STEPS, step, begin)
        return state.position, acceptance

    return jax.jit(run)(draw(num_chains, seed=2))


def smallest_p(position: Position) -> float:
    """The smallest of the Kolmogorov-Smirnov p-values of margins and projections; NaN when something is not finite."""
    (a, b), y = np.asarray(position["x"]).T, np.asarray(position["y"])
    if not np.isfinite([a, b, y]).all():
        return math.nan
    uniform = [
        stats.norm.cdf(a),
        stats.norm.cdf(b),
        stats.norm.cdf((a + b) / math.sqrt(2 + 2 * CORRELATION)),
        stats.norm.cdf((a - b) / math.sqrt(2 - 2 * CORRELATION)),
        stats.gamma(2).cdf(np.exp(y)),
        stats.chi2(2).cdf((a**2 - 2 * CORRELATION * a * b + b**2) / (1 - CORRELATION**2)),
        # Dependence of the two blocks: normal times a sign that is +1 or -1 with probability 1/2 is normal.
        stats.norm.cdf(a * np.sign(y - np.log(stats.gamma(2).median()))),
    ]
    return min(stats.kstest(u, "uniform").pvalue for u in uniform)


OPTIONS = {"hmc": {"num_leapfrog_steps": 5}, "nuts": {"max_tree_depth": 4}}
"""Short trajectories where the length is an option: what is proved does not depend on it."""

FEWER_CHAINS = {"nuts": 5_000}
"""Where a transition takes as many gradients as the longest trajectory of all chains."""


@pytest.fixture(scope="module")
def tunings() -> dict[str, Any]:
    """Kernel -> tuning, learnt once."""
    return {}


@pytest.fixture
def tuning_of(tunings) -> Callable[[str], Any]:
    def get(name: str) -> Any:
        if name not in tunings:
            tunings[name] = tune(make(load_component("kernel", name), name, **OPTIONS.get(name, {})))
        return tunings[name]

    return get


def invariant(p: float) -> bool:
    """The gate; NaN does not pass it."""
    return p >= ALPHA


@pytest.mark.parametrize("name", list_components("kernel"))
def test_a_transition_leaves_the_target_as_it_is(name: str, tuning_of) -> None:
    kernel = make(load_component("kernel", name), name, **OPTIONS.get(name, {}))
    num_chains = FEWER_CHAINS.get(name, NUM_CHAINS)
    begin = draw(num_chains, seed=2)
    position, acceptance = transition(kernel, tuning_of(name), num_chains=num_chains)
    assert 0.3 < acceptance < 0.99, "the test has power only where some proposals are rejected"
    assert abs(np.corrcoef(begin["x"][:, 0], position["x"][:, 0])[0, 1]) < 0.5, "chains have not moved"
    assert invariant(smallest_p(position))


def test_draws_that_were_not_moved_pass_too() -> None:
    assert invariant(smallest_p(draw(NUM_CHAINS, seed=2)))


DEFECTS = {
    "no Metropolis correction": ("log_uniform < log_ratio", "log_uniform < jnp.inf"),
    "accepts with the inverse ratio": ("log_uniform < log_ratio", "log_uniform < -log_ratio"),
    "last half step missing": ("return at, kick(p, at.gradient, 0.5)", "return at, p"),
    "kinetic energy without 1/2": (
        "0.5 * batch_dot(momentum, momentum), 0.5 * batch_dot(momentum_end, momentum_end)",
        "batch_dot(momentum, momentum), batch_dot(momentum_end, momentum_end)",
    ),
    "momentum of sd 0.95": (
        "jax.random.normal(jax.random.fold_in(k, i)",
        "0.95 * jax.random.normal(jax.random.fold_in(k, i)",
    ),
    "one key for momentum and acceptance": (
        "jnp.float64))(key_accept)",
        "jnp.float64))(jax.vmap(lambda k: jax.random.fold_in(k, 0))(key_momentum))",
    ),
    "one momentum for all coordinates": (
        "jax.random.normal(jax.random.fold_in(k, i), shape, dtype)",
        "jnp.broadcast_to(jax.random.normal(k, (), dtype), shape)",
    ),
    "likelihood left out of the ratio": ("+ (proposal.log_likelihood - state.log_likelihood)", ""),
    "prior left out of the ratio": ("(proposal.log_prior - state.log_prior)", "0"),
    "a rejected chain keeps the proposal's density": (
        "return moved._replace(num_steps=state.num_steps + 1)",
        "return moved._replace(num_steps=state.num_steps + 1, log_likelihood=proposal.log_likelihood)",
    ),
    "all chains accept together": ("accepted = log_uniform < log_ratio", "accepted = log_uniform < log_ratio.mean()"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_of_the_trajectory_is_seen(defect: str, tuning_of, seed_defect, monkeypatch) -> None:
    mutant = seed_defect(trajectory, *DEFECTS[defect])
    monkeypatch.setattr(hmc, "run_trajectory", mutant.run_trajectory)
    position, _ = transition(make(hmc.Hmc, "hmc", **OPTIONS["hmc"]), tuning_of("hmc"))
    assert not invariant(smallest_p(position))


def test_a_defect_is_seen_through_chees_too(tuning_of, seed_defect, monkeypatch) -> None:
    mutant = seed_defect(trajectory, *DEFECTS["momentum of sd 0.95"])
    monkeypatch.setattr(chees, "run_trajectory", mutant.run_trajectory)
    position, _ = transition(make(chees.Chees, "chees"), tuning_of("chees"))
    assert not invariant(smallest_p(position))


DEFECTS_OF_TREES = {
    "always draws the newest point": ("takes = jnp.log(uniform) < log_weight - part_weight", "takes = uniform < 2"),
    "likelihood left out of the weights": ("+ (point.log_likelihood - start.log_likelihood)", ""),
}


@pytest.mark.parametrize("defect", DEFECTS_OF_TREES)
def test_a_defect_of_the_tree_is_seen(defect: str, tuning_of, seed_defect, monkeypatch) -> None:
    mutant = seed_defect(tree, *DEFECTS_OF_TREES[defect])
    monkeypatch.setattr(nuts, "grow_tree", mutant.grow_tree)
    kernel = make(nuts.Nuts, "nuts", **OPTIONS["nuts"])
    position, _ = transition(kernel, tuning_of("nuts"), num_chains=FEWER_CHAINS["nuts"])
    assert not invariant(smallest_p(position))


def wider(position: Position) -> Density:
    """Ten per cent too wide in every direction."""
    found = log_density(jax.tree.map(lambda q: q / 1.1, position))
    return found._replace(gradient=jax.tree.map(lambda g: g / 1.1, found.gradient))


def without_jacobian(position: Position) -> Density:
    """The log density of the Gamma variate itself, taken for that of its logarithm."""
    found = log_density(position)
    less = found.log_likelihood - position["y"]
    return found._replace(log_likelihood=less, gradient=found.gradient | {"y": found.gradient["y"] - 1})


@pytest.mark.parametrize("wrong", [wider, without_jacobian])
def test_a_wrong_target_is_seen(wrong, tuning_of) -> None:
    position, _ = transition(make(hmc.Hmc, "hmc", **OPTIONS["hmc"]), tuning_of("hmc"), wrong)
    assert not invariant(smallest_p(position))
