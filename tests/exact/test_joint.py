"""Prior, likelihood and kernel together, where no posterior is known.

Vectorised Geweke test (Geweke 2004): replicates begin in exact draws of (latents, data), take turns at a transition of
the latents and a fresh draw of the data, and must end as they began. Simulation-based calibration (Talts et al. 2018)
with the log likelihood among its quantities (Modrak et al. 2023). Each sees defects that the other does not, so both
are run, and each must see the defects seeded here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.kernels import base
from bayesmesh.kernels.adaptation.warmup import HamiltonianTuning
from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.hmc import Hmc, Options
from bayesmesh.models import gaussian, softmax_regression
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

ALPHA = 1e-6
NUM_ROWS = 7
Change = Callable[[Density, Position], Density]


class Joint:
    """A model with a few rows, the data of each replicate its own.

    Args:
        model_class: the model.
        options: its options.
        fields, constants: of the data.
        given: what is not drawn: field -> (row, ...).
        outcome: the field that the model predicts.
    """

    def __init__(self, model_class: Any, options: Any, fields: Any, constants: Any, given: Any, outcome: str) -> None:
        self.spec = DataSpec(NUM_ROWS, fields, constants, "float64")
        self.model = model_class(options, self.spec)
        # Two devices and tiles of two rows: the layout is part of what is tested.
        self.target = Target(self.model, self.spec, lay_out_rows(NUM_ROWS, 2, 2))
        self.given, self.outcome = {k: jnp.asarray(v) for k, v in given.items()}, outcome

    def draw_data(self, key: jax.Array, position: Position) -> jax.Array:
        """Outcomes of the rows for one replicate."""
        latents = self.target.constrain(position)
        rows = {**self.given, self.outcome: jnp.zeros((NUM_ROWS, *self.spec.fields[self.outcome].shape))}
        return self.model.predict(latents, rows).sample(seed=key).astype(jnp.float64)

    def lay_out(self, outcome: jax.Array) -> dict[str, jax.Array]:
        """As `Target.lay_out`, within a program."""
        slots = self.target.layout.slots(range(self.target.layout.num_devices))
        rows = {**self.given, self.outcome: outcome}
        return {"is_row": jnp.asarray(slots.is_row), **{k: v[slots.row] for k, v in rows.items()}}

    def bind(self, outcome: jax.Array, change: Change) -> Replicates:
        """Return the target of replicates whose outcomes are (replicate, row, ...)."""
        return Replicates(self, outcome, change)


class Replicates(base.Target):
    """A log density of every replicate (replicate, ...), each with its own outcome; as kernels see it."""

    mask = Position(None, None)

    def __init__(self, joint: Joint, outcome: jax.Array, change: Change) -> None:
        self.joint, self.outcome, self.change = joint, outcome, change

    def log_density(self, position: Position) -> Density:
        def one(q: Position, y: jax.Array) -> Density:
            bound = self.joint.target.bind(self.joint.lay_out(y))
            return jax.tree.map(lambda x: x[0], bound.log_density(jax.tree.map(lambda x: x[None], q)))

        return self.change(jax.vmap(one)(position, self.outcome), position)


@functools.cache
def make_joint(name: str) -> Joint:
    if name == "gaussian":
        fields, constants = {"x": FieldSpec((2,), "float64")}, {"noise_scale": 1.5}
        return Joint(gaussian.Gaussian, gaussian.Options(prior_scale=0.8), fields, constants, {}, "x")
    features = np.random.default_rng(0).integers(0, 5, (NUM_ROWS, 2)).astype(np.float64)
    fields = {"features": FieldSpec((2,), "float64"), "label": FieldSpec((), "float64")}
    options = softmax_regression.Options(prior_scale=0.8)
    constants = {"num_classes": 3, "feature_scale": 2}
    return Joint(softmax_regression.SoftmaxRegression, options, fields, constants, {"features": features}, "label")


def keys(seed: Any, iteration: Any, num: int) -> jax.Array:
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(num))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def exact_draws(joint: Joint, num: int, seed: int) -> tuple[Position, jax.Array]:
    return _drawing(joint, num)(seed)


@functools.cache
def _drawing(joint: Joint, num: int) -> Callable[[int], tuple[Position, jax.Array]]:
    def draw(seed: jax.Array) -> tuple[Position, jax.Array]:
        position = jax.vmap(joint.target.sample_prior)(keys(seed, 0, num))
        return position, jax.vmap(joint.draw_data)(keys(seed, 1, num), position)

    return jax.jit(draw)


def kernel_and_tuning(num_steps: int) -> tuple[Hmc, HamiltonianTuning]:
    """HMC with the identity for its metric and a fixed step size."""
    kernel = Hmc(Options(num_leapfrog_steps=num_steps, metric="identity"), 0)
    data = kernel.metric.init(Position(jnp.zeros((1, 1)), None), Position(None, None))
    return kernel, HamiltonianTuning(jnp.asarray(0.45), data, ())


def move(kernel: Hmc, key: jax.Array, state: Any, target: Replicates, tuning: HamiltonianTuning) -> Any:
    """The state after one transition."""
    return kernel.step(key, state, target, tuning)[0]


def nothing(density: Density, position: Position) -> Density:
    del position
    return density


def wide_prior(density: Density, position: Position) -> Density:
    """The prior, 10 % too wide: less curvature, for independent normals of scale 0.8."""
    weight = (1 - 1.1**-2) / 0.8**2
    more = 0.5 * weight * jnp.sum(position.shared**2, axis=1)
    gradient = jax.tree.map(lambda g, q: g + weight * q, density.gradient, position)
    return density._replace(log_prior=density.log_prior + more, gradient=gradient)


def no_likelihood(density: Density, position: Position) -> Density:
    """The posterior ignores the data: a flat likelihood with the prior's gradient, exact for scale 0.8."""
    gradient = jax.tree.map(lambda q: -q / 0.8**2, position)
    return density._replace(log_likelihood=jnp.zeros_like(density.log_likelihood), gradient=gradient)


def likelihood_twice(density: Density, position: Position) -> Density:
    """As if every row had been there twice."""
    gradient = jax.tree.map(lambda g, q: 2 * g + q / 0.8**2, density.gradient, position)
    return density._replace(log_likelihood=2 * density.log_likelihood, gradient=gradient)


def products(position: Position, outcome: jax.Array) -> list[np.ndarray]:
    """Quantities (replicate,) that tie latents to data."""
    first = np.asarray(outcome).reshape(len(outcome), -1)
    flat = np.asarray(position.shared)
    return [flat[:, i] * first.mean(axis=1) for i in range(flat.shape[1])] + [flat[:, i] * first[:, 0] for i in (0, -1)]


def geweke(joint: Joint, change: Change, num: int = 6000, num_turns: int = 15) -> float:
    """The smallest p-value."""
    kernel, tuning = kernel_and_tuning(3)

    @jax.jit
    def alternate(position: Position, outcome: jax.Array) -> tuple[Position, jax.Array]:
        def turn(i: jax.Array, carry: tuple[Position, jax.Array]) -> tuple[Position, jax.Array]:
            position, outcome = carry
            target, key = joint.bind(outcome, change), keys(5, i, num)
            state = move(kernel, key, kernel.init(key, position, target), target, tuning)
            return state.position, jax.vmap(joint.draw_data)(keys(6, i, num), state.position)

        return jax.lax.fori_loop(0, num_turns, turn, (position, outcome))

    position, outcome = alternate(*exact_draws(joint, num, seed=1))
    # Latents against the prior itself; products with the data against fresh draws, after a transition without new data.
    p = [stats.kstest(margin / 0.8, "norm").pvalue for margin in np.asarray(position.shared).T]
    target = joint.bind(outcome, change)

    @jax.jit
    def stay(position: Position) -> Position:
        def turn(i: jax.Array, state: Any) -> Any:
            return move(kernel, keys(7, i, num), state, target, tuning)

        return jax.lax.fori_loop(0, 8, turn, kernel.init(keys(7, 0, num), position, target)).position

    fresh = exact_draws(joint, 4 * num, seed=2)
    pairs = zip(products(stay(position), outcome), products(*fresh), strict=True)
    return float(np.min([*p, *(stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs)]))


def calibration(
    joint: Joint, change: Change, num: int = 640, num_draws: int = 99, thin: int = 4
) -> Mapping[str, float]:
    """p-values of the rank of the truth and of its log likelihood, over 20 bins."""
    kernel, tuning = kernel_and_tuning(5)
    truth, outcome = exact_draws(joint, num, seed=3)

    def quantities(position: Position) -> jax.Array:
        likelihood = joint.bind(outcome, nothing).log_density(position).log_likelihood
        return jnp.concatenate([position.shared, likelihood[:, None]], axis=1)

    @jax.jit
    def ranks(truth: Position) -> jax.Array:
        target = joint.bind(outcome, change)
        true = quantities(truth)

        def draw(i: jax.Array, carry: Any) -> Any:
            def step(j: jax.Array, state: Any) -> Any:
                return move(kernel, keys(8, i * thin + j, num), state, target, tuning)

            state = jax.lax.fori_loop(0, thin, step, carry[0])
            below = quantities(state.position) < true
            # The first fifth of the draws is burned.
            return state, carry[1] + jnp.where(i >= num_draws // 4, below, 0)

        begin = jax.vmap(joint.target.sample_prior)(keys(9, 0, num))
        total = num_draws + num_draws // 4
        return jax.lax.fori_loop(
            0, total, draw, (kernel.init(keys(9, 1, num), begin, target), jnp.zeros(true.shape, jnp.int32))
        )[1]

    found = np.asarray(ranks(truth))
    counts = [np.bincount(found[:, i] * 20 // (num_draws + 1), minlength=20) for i in range(found.shape[1])]
    p = [stats.chisquare(c).pvalue for c in counts]
    return {"latents": min(p[:-1]), "log likelihood": p[-1]}


MODELS = ["gaussian", pytest.param("softmax_regression", marks=pytest.mark.verify)]


@pytest.mark.parametrize("name", MODELS)
def test_latents_and_data_are_drawn_from_one_joint_distribution(name: str) -> None:
    assert geweke(make_joint(name), nothing) >= ALPHA


@pytest.mark.parametrize(
    "defect",
    [wide_prior, *(pytest.param(each, marks=pytest.mark.verify) for each in (no_likelihood, likelihood_twice))],
)
def test_the_joint_test_sees_a_defect(defect: Change) -> None:
    assert not (geweke(make_joint("gaussian"), defect) >= ALPHA)


@pytest.mark.parametrize("name", MODELS)
def test_posteriors_are_calibrated(name: str) -> None:
    found = calibration(make_joint(name), nothing)
    assert all(p >= ALPHA for p in found.values()), found


def test_calibration_sees_a_posterior_that_ignores_the_data() -> None:
    found = calibration(make_joint("gaussian"), no_likelihood)
    assert not (found["log likelihood"] >= ALPHA)
