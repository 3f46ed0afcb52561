"""Transitions leave their target as it is, and every defect seeded into them is seen.

50,000 exact draws of a 3-dimensional target make 20 transitions each; every margin and projection must still be the
target's. The replicates are independent, so the p-values are exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.config.registry import load_component
from bayesmesh.kernels import chees, hmc, mams, nuts, random_walk, replica_exchange
from bayesmesh.kernels.base import Kernel, Position, Target
from bayesmesh.kernels.hamiltonian import trajectory, tree
from bayesmesh.kernels.hamiltonian.metrics import base
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.kernels.tempered_smc import Tempering
from kernel_options import kernel_options, kernels_of_any_target

NUM_CHAINS, NUM_STEPS, ALPHA = 50_000, 20, 1e-6
FEW_CHAINS = 5_000
"""Enough to see a gross defect: its p-value is then below 1e-15."""

CORRELATION = 0.8


def log_prior(q: jax.Array) -> jax.Array:
    """A correlated pair of normals."""
    a, b = q[0], q[1]
    return -0.5 * (a**2 - 2 * CORRELATION * a * b + b**2) / (1 - CORRELATION**2)


def log_likelihood(q: jax.Array) -> jax.Array:
    """The log of a Gamma(2) variate."""
    return 2 * q[2] - jnp.exp(q[2])


def target_of(width: Any = 1.0, jacobian: Any = 0.0) -> Target:
    """The target, too wide by a factor, and without a part of the Jacobian of the logarithm."""
    return FunctionTarget(
        lambda q: log_likelihood(q / width) - jacobian * q[2],
        lambda q: log_prior(q / width),
    )


TARGET = target_of()


def draw(num_chains: int, seed: int, power: float = 1.0) -> Position:
    """Exact draws; with the likelihood to a power its variate is Gamma(2 power) with rate `power`."""
    generator = np.random.default_rng(seed)
    a, noise = generator.standard_normal((2, num_chains))
    b = CORRELATION * a + math.sqrt(1 - CORRELATION**2) * noise
    y = np.log(generator.gamma(2.0 * power, size=num_chains) / power)
    return Position(jnp.asarray(np.column_stack([a, b, y])), None)


def beside(kernel: Kernel, num_chains: int) -> Position | None:
    """Exact draws for the chains that are not reported; None where there are none."""
    num_others = num_chains - kernel.num_chains_reported(num_chains)
    if not num_others:
        return None
    assert hasattr(kernel.options, "inverse_temperature"), "say here what the further chains of this kernel see"
    return draw(num_others, seed=3, power=kernel.options.inverse_temperature)


def start(kernel: Kernel, num_chains: int, seed: int) -> Position:
    """Exact draws for all chains of a kernel."""
    reported, others = draw(kernel.num_chains_reported(num_chains), seed), beside(kernel, num_chains)
    return reported if others is None else Position(jnp.concatenate([reported.shared, others.shared]), None)


def key_at(iteration: Any, num_chains: int) -> jax.Array:
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(17), c))(jnp.arange(num_chains))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def make(name: str, kernel_class: type[Kernel] | None = None) -> Kernel:
    component, options = name.split(",")[0], OPTIONS.get(name, {})
    return (kernel_class or load_component("kernel", component))(kernel_options(component, **options), num_warmup=200)


def tune(kernel: Kernel, num_chains: int = 16) -> Any:
    """Tuning after a short warmup of a few chains, begun in exact draws."""

    def run(position: Position) -> Any:
        state = kernel.init(key_at(kernel.num_warmup, num_chains), position, TARGET)

        def step(i: jax.Array, carry: Any) -> Any:
            state, adaptation = carry
            after, info = kernel.step(key_at(i, num_chains), state, TARGET, kernel.tuning(adaptation, True))
            return after, kernel.adapt(adaptation, state, after, info, TARGET)

        begin = (state, kernel.init_adaptation(state, TARGET))
        tuning = kernel.tuning(jax.lax.fori_loop(0, kernel.num_adaptive, step, begin)[1], False)
        # After warmup it is the same for all chains, and then for any number of them.
        return tuning._replace(step_size=jnp.ravel(tuning.step_size)[0])

    return jax.jit(run)(start(kernel, num_chains, seed=1))


class Transitions:
    """`NUM_STEPS` transitions of a number of chains, compiled once; tuning and the target's defects are arguments."""

    def __init__(self, kernel: Kernel, num_chains: int) -> None:
        self.kernel, self.begin = kernel, start(kernel, num_chains, seed=2)
        # A program of many chains runs longer than its optimisation takes.
        level = 3 if num_chains > FEW_CHAINS else 0
        self._run = jax.jit(self._trace, compiler_options={"xla_backend_optimization_level": level})

    def _trace(self, position: Position, tuning: Any, width: jax.Array, jacobian: jax.Array) -> tuple[Position, Any]:
        target, num_chains = target_of(width, jacobian), len(position.shared)
        if isinstance(getattr(tuning, "extra", None), Tempering):
            ancestor = jnp.arange(num_chains, dtype=jnp.int32)
            tuning = tuning._replace(extra=tuning.extra._replace(ancestor=ancestor))

        def step(i: jax.Array, carry: Any) -> Any:
            state, info = self.kernel.step(key_at(i, num_chains), carry[0], target, tuning)
            return state, carry[1] + info.acceptance_rate.mean() / NUM_STEPS

        begin = (self.kernel.init(key_at(NUM_STEPS, num_chains), position, target), jnp.zeros(()))
        state, acceptance = jax.lax.fori_loop(0, NUM_STEPS, step, begin)
        return state.position, acceptance

    def __call__(self, tuning: Any, width: float = 1.0, jacobian: float = 0.0) -> tuple[Position, float]:
        """Positions of all chains, and the mean acceptance of those that are reported."""
        return self._run(self.begin, tuning, jnp.asarray(width), jnp.asarray(jacobian))


def smallest_p(kernel: Kernel, position: Position) -> float:
    """The smallest of the Kolmogorov-Smirnov p-values of margins and projections of the chains that are reported.

    NaN when something is not finite.
    """
    a, b, y = np.asarray(position.shared)[: kernel.num_chains_reported(len(position.shared))].T
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


OPTIONS = {
    "hmc": {"num_leapfrog_steps": 5},
    "nuts": {"max_tree_depth": 4},
    "nuts, split": {"max_tree_depth": 4, "integrator": "split"},
    "replica_exchange": {"num_leapfrog_steps": 5},
}
"""Short trajectories where the length is an option: what is proved does not depend on it."""

CHAINS = {"nuts": 5_000, "nuts, split": 5_000}
"""Where a transition takes as many gradients as the longest trajectory of all chains."""

ADJUSTED = [name for name in kernels_of_any_target() if load_component("kernel", name).is_adjusted] + ["nuts, split"]
"""Kernels that leave their target exactly as it is."""


@pytest.fixture(scope="module")
def tuning_of() -> Callable[[str], Any]:
    """A function of a kernel's name that gives its tuning, learnt once."""
    return functools.cache(lambda name: tune(make(name)))


@pytest.fixture(scope="module")
def transitions_of() -> Callable[[str], Transitions]:
    """A function of a kernel's name that gives its transitions, compiled once."""
    return functools.cache(lambda name: Transitions(make(name), CHAINS.get(name, NUM_CHAINS)))


def invariant(p: float) -> bool:
    """The gate; NaN does not pass it."""
    return p >= ALPHA


@pytest.mark.parametrize("name", ADJUSTED)
def test_a_transition_leaves_the_target_as_it_is(name: str, tuning_of, transitions_of) -> None:
    transitions = transitions_of(name)
    position, acceptance = transitions(tuning_of(name))
    assert 0.1 < acceptance < 0.99, "the test has power only where some proposals are rejected"
    reported = slice(transitions.kernel.num_chains_reported(len(position.shared)))
    correlation = np.corrcoef(transitions.begin.shared[reported, 0], position.shared[reported, 0])[0, 1]
    assert abs(correlation) < 0.5, "chains have not moved"
    assert invariant(smallest_p(transitions.kernel, position))


def test_the_hot_chains_keep_their_own_target(tuning_of, transitions_of) -> None:
    kernel = make("replica_exchange")
    position, _ = transitions_of("replica_exchange")(tuning_of("replica_exchange"))
    y = np.asarray(position.shared)[NUM_CHAINS // 2 :, 2]
    power = kernel.options.inverse_temperature
    assert invariant(stats.kstest(np.exp(y), stats.gamma(2 * power, scale=1 / power).cdf).pvalue)


@pytest.mark.parametrize("name", ["hmc", "replica_exchange"])
def test_draws_that_were_not_moved_pass_too(name: str) -> None:
    kernel = make(name)
    assert invariant(smallest_p(kernel, start(kernel, NUM_CHAINS, seed=2)))


DEFECTS = {
    "no Metropolis correction": ("log_uniform < log_ratio", "log_uniform < jnp.inf"),
    "accepts with the inverse ratio": ("log_uniform < log_ratio", "log_uniform < -log_ratio"),
    "last half step missing": (
        "return jnp.where(index + 1 < num_steps, 1.0, 0.5)",
        "return jnp.where(index + 1 < num_steps, 1.0, 0.0)",
    ),
    "kinetic energy without 1/2": (
        "0.5 * batch_dot(momentum, momentum), 0.5 * batch_dot(momentum_end, momentum_end)",
        "batch_dot(momentum, momentum), batch_dot(momentum_end, momentum_end)",
    ),
    "one number for momentum and acceptance": ("uniform(key, Stream.ACCEPT,", "uniform(key, Stream.SHARED_MOMENTUM,"),
    "likelihood left out of the ratio": ("+ (proposal.log_likelihood - state.log_likelihood)", ""),
    "prior left out of the ratio": ("(proposal.log_prior - state.log_prior)", "0"),
    "a rejected chain keeps the proposal's density": (
        "after = after._replace(num_steps=state.num_steps + 1)",
        "after = after._replace(num_steps=state.num_steps + 1, log_likelihood=proposal.log_likelihood)",
    ),
    "all chains accept together": ("(log_uniform < log_ratio)", "(log_uniform < log_ratio.mean())"),
}

DEFECTS_OF_MOMENTA = {
    "momentum of sd 0.95": ("normal(key, stream,", "0.95 * normal(key, stream,"),
    "one momentum for all coordinates": (
        "normal(key, stream, part.shape[1:], part.dtype)",
        "jnp.broadcast_to(normal(key, stream, (1,) * (part.ndim - 1), part.dtype), part.shape)",
    ),
}


SUBTLE = ("a rejected chain keeps the proposal's density", "momentum of sd 0.95")
"""Defects that take all chains to be seen."""


FEW = (*[*DEFECTS][:3], *[*DEFECTS_OF_MOMENTA][:1])
"""Defects that `make test` seeds; `make verify-samplers` seeds all."""


@pytest.mark.parametrize(
    "defect",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.verify) for name in (*DEFECTS, *DEFECTS_OF_MOMENTA)],
)
def test_a_defect_of_the_trajectory_is_seen(defect: str, tuning_of, seed_defect, monkeypatch) -> None:
    kernel, tuning = make("hmc"), tuning_of("hmc")
    num_chains = NUM_CHAINS if defect in SUBTLE else FEW_CHAINS
    if defect in DEFECTS:
        mutant = seed_defect(trajectory, *DEFECTS[defect])
        monkeypatch.setattr(hmc, "run_trajectory", mutant.run_trajectory)
    else:
        mutant = seed_defect(base, *DEFECTS_OF_MOMENTA[defect])
        monkeypatch.setattr(base, "standard_normal", mutant.standard_normal)
    position, _ = Transitions(kernel, num_chains)(tuning)
    assert not invariant(smallest_p(kernel, position))


def test_a_defect_is_seen_through_chees_too(tuning_of, seed_defect, monkeypatch) -> None:
    mutant, kernel, tuning = (
        seed_defect(trajectory, *DEFECTS["kinetic energy without 1/2"]),
        make("chees"),
        tuning_of("chees"),
    )
    monkeypatch.setattr(chees, "run_trajectory", mutant.run_trajectory)
    position, _ = Transitions(kernel, FEW_CHAINS)(tuning)
    assert not invariant(smallest_p(kernel, position))


DEFECTS_OF_TREES = {
    "always draws the newest point": ("takes = grows & (jnp.log(number) < log_weight - part_weight)", "takes = grows"),
    "likelihood left out of the weights": ("+ (point.log_likelihood - start.log_likelihood)", ""),
}


@pytest.mark.parametrize("defect", DEFECTS_OF_TREES)
def test_a_defect_of_the_tree_is_seen(defect: str, tuning_of, seed_defect, monkeypatch) -> None:
    mutant, kernel = seed_defect(tree, *DEFECTS_OF_TREES[defect]), make("nuts")
    tuning = tuning_of("nuts")
    for name in ("begin_tree", "grow", "pick"):
        monkeypatch.setattr(nuts, name, getattr(mutant, name))
    position, _ = Transitions(kernel, CHAINS["nuts"])(tuning)
    assert not invariant(smallest_p(kernel, position))


DEFECTS_OF_KERNELS = {
    "a walk that leaves the likelihood out": (
        random_walk,
        "RandomWalk",
        "+ (proposal.log_likelihood - state.log_likelihood)",
        "",
    ),
    "a walk in one direction": (
        random_walk,
        "RandomWalk",
        "over_chains(scale.astype(q.dtype), q) * z",
        "over_chains(scale.astype(q.dtype), q) * jnp.abs(z)",
    ),
    "a microcanonical trajectory without its volume": (
        mams,
        "Mams",
        "(proposal.log_likelihood - state.log_likelihood) + log_volume",
        "(proposal.log_likelihood - state.log_likelihood)",
    ),
    "a volume of one dimension more": (mams, "Mams", "(1 - size) * log_stretch", "-size * log_stretch"),
    "swaps that go the wrong way": (replica_exchange, "ReplicaExchange", "(hot - cold)", "(cold - hot)"),
    "swaps that forget the temperature": (
        replica_exchange,
        "ReplicaExchange",
        "log_likelihood = state.log_likelihood / tempered.inverse_temperature",
        "log_likelihood = state.log_likelihood",
    ),
    "a swap that keeps its old density": (
        replica_exchange,
        "ReplicaExchange",
        "HamiltonianState(position, *tempered.log_density(position), state.num_steps)",
        "state._replace(position=position)",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS_OF_KERNELS)
def test_a_defect_of_a_kernel_is_seen(defect: str, tuning_of, seed_defect) -> None:
    module, class_name, text, replacement = DEFECTS_OF_KERNELS[defect]
    name = module.__name__.rpartition(".")[2]
    mutant = seed_defect(module, text, replacement, class_name)
    kernel = make(name, getattr(mutant, class_name))
    position, _ = Transitions(kernel, FEW_CHAINS)(tuning_of(name))
    assert not invariant(smallest_p(kernel, position))


WRONG_TARGETS = {"ten per cent too wide": {"width": 1.1}, "without a Jacobian": {"jacobian": 1.0}}


@pytest.mark.parametrize("wrong", WRONG_TARGETS)
def test_a_wrong_target_is_seen(wrong: str, tuning_of, transitions_of) -> None:
    position, _ = transitions_of("hmc")(tuning_of("hmc"), **WRONG_TARGETS[wrong])
    assert not invariant(smallest_p(make("hmc"), position))
