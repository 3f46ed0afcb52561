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
from bayesmesh.kernels.base import Density, Position
from bayesmesh.kernels.hmc import Hmc, HmcTuning
from bayesmesh.kernels.hmc import Options as HmcOptions
from bayesmesh.models import gaussian, softmax_regression
from bayesmesh.sampling.density import Target
from bayesmesh.sampling.mesh import lay_out_rows

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
        layout = self.target.layout
        data = {"is_row": (jnp.arange(layout.padded_rows) < NUM_ROWS).reshape(layout.shape)}
        for name, value in {**self.given, self.outcome: outcome}.items():
            padded = jnp.pad(value, [(0, layout.padded_rows - NUM_ROWS)] + [(0, 0)] * (value.ndim - 1))
            data[name] = padded.reshape(*layout.shape, *value.shape[1:])
        return data

    def log_density(self, position: Position, outcome: jax.Array, change: Change) -> Density:
        """Density of every replicate (replicate, ...) with its own outcome (replicate, row, ...)."""

        def one(q: Position, y: jax.Array) -> Density:
            batch = {k: v[None] for k, v in q.items()}
            return jax.tree.map(lambda x: x[0], self.target.log_density(batch, self.lay_out(y)))

        return change(jax.vmap(one)(position, outcome), position)


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


def keys(seed: int, iteration: Any, num: int) -> jax.Array:
    chains = jax.vmap(lambda c: jax.random.fold_in(jax.random.key(seed), c))(jnp.arange(num))
    return jax.vmap(lambda k: jax.random.fold_in(k, iteration))(chains)


def exact_draws(joint: Joint, num: int, seed: int) -> tuple[Position, jax.Array]:
    position = jax.vmap(joint.target.sample_prior)(keys(seed, 0, num))
    return position, jax.vmap(joint.draw_data)(keys(seed, 1, num), position)


def kernel_and_tuning(joint: Joint, num_steps: int) -> tuple[Hmc, HmcTuning]:
    return Hmc(HmcOptions(num_leapfrog_steps=num_steps), 0), HmcTuning(jnp.asarray(0.45), joint.target.active())


def nothing(density: Density, position: Position) -> Density:
    del position
    return density


def wide_prior(density: Density, position: Position) -> Density:
    """The prior, 10 % too wide: less curvature, for independent normals of scale 0.8."""
    weight = (1 - 1.1**-2) / 0.8**2
    more = sum(0.5 * weight * jnp.sum(q.reshape(q.shape[0], -1) ** 2, axis=1) for q in position.values())
    gradient = {k: g + weight * position[k] for k, g in density.gradient.items()}
    return density._replace(log_prior=density.log_prior + more, gradient=gradient)


def no_likelihood(density: Density, position: Position) -> Density:
    """The posterior ignores the data: a flat likelihood with the prior's gradient, exact for scale 0.8."""
    gradient = {k: -q / 0.8**2 for k, q in position.items()}
    return density._replace(log_likelihood=jnp.zeros_like(density.log_likelihood), gradient=gradient)


def likelihood_twice(density: Density, position: Position) -> Density:
    """As if every row had been there twice."""
    gradient = {k: 2 * g + position[k] / 0.8**2 for k, g in density.gradient.items()}
    return density._replace(log_likelihood=2 * density.log_likelihood, gradient=gradient)


def products(position: Position, outcome: jax.Array) -> list[np.ndarray]:
    """Quantities (replicate,) that tie latents to data."""
    first = np.asarray(outcome).reshape(len(outcome), -1)
    flat = np.concatenate([np.asarray(position[k]).reshape(len(first), -1) for k in sorted(position)], axis=1)
    return [flat[:, i] * first.mean(axis=1) for i in range(flat.shape[1])] + [flat[:, i] * first[:, 0] for i in (0, -1)]


def geweke(joint: Joint, change: Change, num: int = 6000, num_turns: int = 15) -> float:
    """The smallest p-value."""
    kernel, tuning = kernel_and_tuning(joint, 3)

    @jax.jit
    def alternate(position: Position, outcome: jax.Array) -> tuple[Position, jax.Array]:
        def turn(i: jax.Array, carry: tuple[Position, jax.Array]) -> tuple[Position, jax.Array]:
            position, outcome = carry
            density = functools.partial(joint.log_density, outcome=outcome, change=change)
            state, _ = kernel.step(keys(5, i, num), kernel.init(position, density), density, tuning)
            return state.position, jax.vmap(joint.draw_data)(keys(6, i, num), state.position)

        return jax.lax.fori_loop(0, num_turns, turn, (position, outcome))

    position, outcome = alternate(*exact_draws(joint, num, seed=1))
    # Latents against the prior itself; products with the data against fresh draws, after a transition without new data.
    margins = [np.asarray(v).reshape(num, -1) for v in position.values()]
    p = [stats.kstest(m[:, i] / 0.8, "norm").pvalue for m in margins for i in range(m.shape[1])]
    density = functools.partial(joint.log_density, outcome=outcome, change=change)

    @jax.jit
    def stay(position: Position) -> Position:
        def turn(i: jax.Array, state: Any) -> Any:
            return kernel.step(keys(7, i, num), state, density, tuning)[0]

        return jax.lax.fori_loop(0, 8, turn, kernel.init(position, density)).position

    fresh = exact_draws(joint, 4 * num, seed=2)
    pairs = zip(products(stay(position), outcome), products(*fresh), strict=True)
    return float(np.min([*p, *(stats.ks_2samp(a, b, method="asymp").pvalue for a, b in pairs)]))


def calibration(
    joint: Joint, change: Change, num: int = 640, num_draws: int = 99, thin: int = 4
) -> Mapping[str, float]:
    """p-values of the rank of the truth and of its log likelihood, over 20 bins."""
    kernel, tuning = kernel_and_tuning(joint, 5)
    truth, outcome = exact_draws(joint, num, seed=3)

    def quantities(position: Position) -> jax.Array:
        likelihood = joint.log_density(position, outcome, nothing).log_likelihood
        return jnp.concatenate([*(position[k].reshape(num, -1) for k in sorted(position)), likelihood[:, None]], axis=1)

    @jax.jit
    def ranks(truth: Position) -> jax.Array:
        density = functools.partial(joint.log_density, outcome=outcome, change=change)
        true = quantities(truth)

        def draw(i: jax.Array, carry: Any) -> Any:
            def step(j: jax.Array, state: Any) -> Any:
                return kernel.step(keys(8, i * thin + j, num), state, density, tuning)[0]

            state = jax.lax.fori_loop(0, thin, step, carry[0])
            below = quantities(state.position) < true
            # The first fifth of the draws is burned.
            return state, carry[1] + jnp.where(i >= num_draws // 4, below, 0)

        begin = jax.vmap(joint.target.sample_prior)(keys(9, 0, num))
        total = num_draws + num_draws // 4
        return jax.lax.fori_loop(0, total, draw, (kernel.init(begin, density), jnp.zeros(true.shape, jnp.int32)))[1]

    found = np.asarray(ranks(truth))
    counts = [np.bincount(found[:, i] * 20 // (num_draws + 1), minlength=20) for i in range(found.shape[1])]
    p = [stats.chisquare(c).pvalue for c in counts]
    return {"latents": min(p[:-1]), "log likelihood": p[-1]}


@pytest.mark.parametrize("name", ["gaussian", "softmax_regression"])
def test_latents_and_data_are_drawn_from_one_joint_distribution(name: str) -> None:
    assert geweke(make_joint(name), nothing) >= ALPHA


@pytest.mark.parametrize("defect", [wide_prior, no_likelihood, likelihood_twice])
def test_the_joint_test_sees_a_defect(defect: Change) -> None:
    assert not (geweke(make_joint("gaussian"), defect) >= ALPHA)


@pytest.mark.parametrize("name", ["gaussian", "softmax_regression"])
def test_posteriors_are_calibrated(name: str) -> None:
    found = calibration(make_joint(name), nothing)
    assert all(p >= ALPHA for p in found.values()), found


def test_calibration_sees_a_posterior_that_ignores_the_data() -> None:
    found = calibration(make_joint("gaussian"), no_likelihood)
    assert not (found["log likelihood"] >= ALPHA)
