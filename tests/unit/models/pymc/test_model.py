"""A PyMC model as a model of the pipeline, against the same model written with TFP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc
import pytest
from pytensor.tensor.type import TensorType
from scipy import stats

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.chees import Chees, Options
from bayesmesh.models.pymc.model import FieldSymbol, PymcModel
from bayesmesh.sampling.checks.model import check_model
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

NUM_ROWS = 11
GENERATOR = np.random.default_rng(3)
X = GENERATOR.standard_normal((NUM_ROWS, 2))
DATA = {"x": X, "y": X @ [1.0, -2.0] + 0.5 * GENERATOR.standard_normal(NUM_ROWS)}
ROWS = {name: jnp.asarray(value) for name, value in DATA.items()}
SPEC = DataSpec(NUM_ROWS, {"x": FieldSpec((2,), "float64"), "y": FieldSpec((), "float64")}, {}, "float64")


class Regression(PymcModel):
    """Weights, a positive noise, and a potential that belongs to the prior."""

    pretty_name = "Regression in PyMC"
    offers = ()

    def build(self, rows: Mapping[str, Any]) -> None:
        weights = pymc.Normal("weights", 0, 2, shape=rows["x"].type.shape[1])
        noise = pymc.HalfNormal("noise", 1)
        mixture = pymc.Dirichlet("mixture", np.array([1.0, 2.0, 3.0]))
        pymc.Potential("sparse", -0.1 * abs(weights).sum())
        pymc.Normal("y", rows["x"] @ weights + mixture[0], noise, observed=rows["y"])


MODEL = Regression(Settings(), SPEC)


def log_prior(z: Mapping[str, Any]) -> float:
    return float(
        stats.norm(0, 2).logpdf(z["weights"]).sum()
        + stats.halfnorm.logpdf(z["noise"])
        + stats.dirichlet([1, 2, 3]).logpdf(np.asarray(z["mixture"]) / np.sum(z["mixture"]))
        - 0.1 * np.abs(z["weights"]).sum()
    )


def per_row(z: Mapping[str, Any]) -> np.ndarray:
    return stats.norm.logpdf(ROWS["y"], X @ np.asarray(z["weights"]) + z["mixture"][0], z["noise"])


@pytest.fixture(scope="module")
def latents() -> dict[str, jax.Array]:
    return jax.jit(lambda: MODEL.prior(SPEC).sample(seed=jax.random.key(1)))()


def test_prior_and_likelihood_are_apart_and_scipy_s(latents) -> None:
    np.testing.assert_allclose(MODEL.prior(SPEC).log_prob(latents), log_prior(latents), rtol=1e-8)
    np.testing.assert_allclose(MODEL.log_likelihood(latents, ROWS), per_row(latents), rtol=1e-10)


def test_fewer_rows_are_fewer_terms(latents) -> None:
    few = {k: v[:4] for k, v in ROWS.items()}
    np.testing.assert_allclose(MODEL.log_likelihood(latents, few), per_row(latents)[:4], rtol=1e-10)


def test_draws_of_the_prior_come_from_the_prior() -> None:
    draw = jax.jit(jax.vmap(lambda key: MODEL.prior(SPEC).sample(seed=key)))
    draws = draw(jax.random.split(jax.random.key(0), 4000))
    for values, law in [
        (draws["weights"][:, 0], stats.norm(0, 2)),
        (draws["noise"], stats.halfnorm()),
        (draws["mixture"][:, 1], stats.beta(2, 4)),
    ]:
        assert stats.kstest(np.asarray(values), law.cdf).pvalue > 1e-5
    assert abs(stats.spearmanr(draws["noise"], draws["weights"][:, 0]).statistic) < 0.1


def test_the_map_to_unconstrained_space_is_pymc_s(latents) -> None:
    bijector = MODEL.prior(SPEC).experimental_default_event_space_bijector()
    z = bijector.inverse(latents)
    assert {k: v.shape for k, v in z.items()} == {"weights": (2,), "noise": (), "mixture": (2,)}
    for name, value in bijector.forward(z).items():
        np.testing.assert_allclose(value, latents[name], rtol=1e-12)
    columns = jax.jacfwd(lambda z: bijector.forward(z)["mixture"][:2])(z)["mixture"]
    expected = jnp.log(jnp.abs(jnp.linalg.det(columns))) + z["noise"]
    np.testing.assert_allclose(bijector.forward_log_det_jacobian(z), expected, rtol=1e-10)


def test_it_predicts_its_observed_variable(latents) -> None:
    predictive = MODEL.predict(latents, ROWS)
    np.testing.assert_allclose(MODEL.outcome(ROWS), ROWS["y"])
    assert predictive.batch_shape == (NUM_ROWS,)
    np.testing.assert_allclose(predictive.log_prob(ROWS["y"]), per_row(latents), rtol=1e-10)
    draw = jax.jit(jax.vmap(lambda key: predictive.sample(seed=key)))
    drawn = draw(jax.random.split(jax.random.key(2), 2000))
    standard = (drawn - (X @ latents["weights"] + latents["mixture"][0])) / latents["noise"]
    assert stats.kstest(np.asarray(standard).ravel(), "norm").pvalue > 1e-5


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_is_sampled_as_any_model(dtype: str) -> None:
    """Two devices' rows, tiles and padding; ChEES takes steps that are accepted, and the state keeps its dtype."""
    spec = DataSpec(NUM_ROWS, SPEC.fields, {}, dtype)
    target = Target(Regression(Settings(), spec), spec, lay_out_rows(NUM_ROWS, 2, 3))
    data = {k: jnp.asarray(v) for k, v in target.lay_out(DATA).items()}
    kernel = Chees(Options(metric="diagonal"), 5)

    @jax.jit
    def run(key: jax.Array) -> Any:
        keys, bound = jax.random.split(key, 4), target.bind(data)
        state = kernel.init(keys, jax.vmap(target.sample_prior)(keys), bound)
        adaptation = kernel.init_adaptation(state, bound)
        for _ in range(2):
            before = state
            state, info = kernel.step(keys, before, bound, kernel.tuning(adaptation, is_adapting=True))
            adaptation = kernel.adapt(adaptation, before, state, info, bound)
        return state, info, jax.vmap(target.constrain)(state.position)

    state, info, there = run(jax.random.key(3))
    one = {k: np.asarray(v[0], np.float64) for k, v in there.items()}
    np.testing.assert_allclose(state.log_likelihood[0], per_row(one).sum(), rtol=1e-5)
    assert info.acceptance_rate.max() > 0.1
    assert {v.dtype.name for v in jax.tree.leaves(state.position)} == {dtype}


class Discrete(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("y", pymc.Poisson("count", 3), 1, observed=rows["y"])


class Wholesale(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        mean = pymc.Normal("mean", 0, 1)
        pymc.Potential("fit", -((rows["y"] - mean) ** 2).sum())


class Across(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("z", pymc.Normal("mean", 0, 1), 1, observed=rows["y"][None, :])


class Summed(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        mean = pymc.Normal("mean", 0, 1)
        pymc.Potential("fit", -((rows["y"] - mean) ** 2).sum(keepdims=True))


class Local(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("y", pymc.Normal("effects", 0, 1, shape=rows["y"].shape), 1, observed=rows["y"])


class Unique(Regression):
    """NumPy would find one unique value in the symbol of the field."""

    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("effects", 0, 1, shape=len(np.unique(rows["y"])))


class Largest(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("effects", 0, 1, shape=int(rows["y"].max()))


class Blind(Regression):
    def build(self, rows: Mapping[str, Any]) -> None:
        pymc.Normal("y", pymc.Normal("mean", 0, 1), 1, observed=np.zeros(3))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Discrete, "'count' is int"),
        (Wholesale, r"Wholesale: 'fit' has a log density of shape \(\) for 2 rows"),
        (Across, r"Across: 'z' has a log density of shape \(1, 2\) for 2 rows"),
        (Summed, r"Summed: 'fit' has a log density of shape \(1,\) for 2 rows"),
        (Local, r"'effects' depends on the rows(?s:.*)`shape=8` for eight groups(?s:.*)given: arrays"),
        (
            Unique,
            r"Unique\.build: .*needs the value of a symbol.*numpy\.unique(?s:.*)take functions of `pytensor.tensor`",
        ),
        (Largest, r"Largest\.build: .*needs the value of a symbol(?s:.*)`shape=8`(?s:.*)given: arrays"),
        (Blind, "nothing in it depends on the rows"),
    ],
)
def test_what_cannot_be_taken_is_refused(wrong: type[PymcModel], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_model(wrong, Settings(), SPEC)


def symbol() -> FieldSymbol:
    return FieldSymbol(TensorType("float64", shape=(None,)), None, name="x")


class Coins(PymcModel):
    """The probability is a latent without bounds, and the number of throws one of the rows."""

    pretty_name = "Coins"
    offers = ()

    def build(self, rows: Mapping[str, Any]) -> None:
        probability = pymc.Normal("probability", 0, 1)
        pymc.Bernoulli("heads", probability, observed=rows["heads"])
        pymc.Binomial("many", rows["throws"], probability, observed=rows["many"])
        pymc.Normal("measured", probability, rows["scale"], observed=rows["measured"])


COINS = {
    "heads": np.array([1, 1, 0, 1, 0]),
    "throws": np.array([3, 4, 5, 2, 7]),
    "many": np.array([0, 4, 2, 1, 6]),
    "scale": np.array([0.5, 1.0, 2.0, 0.3, 0.7]),
    "measured": np.array([0.2, 0.9, 0.1, 0.4, 0.6]),
}


@pytest.fixture(scope="module")
def coins() -> tuple[Target, dict[str, jax.Array]]:
    spec = DataSpec(5, {k: FieldSpec((), v.dtype.name) for k, v in COINS.items()}, {}, "float64")
    target = Target(Coins(Settings(), spec), spec, lay_out_rows(5, 1, 3))
    return target, {k: jnp.asarray(v) for k, v in target.lay_out(COINS).items()}


@pytest.mark.parametrize("probability", [-0.2, 1.2, 0.0, 1e-9, 0.37, 1.0])
def test_support_and_density_are_pymc_s(coins, probability: float) -> None:
    """Out of range it is -inf, in range it is finite and so is its gradient: five rows in tiles of three, one padded."""
    target, data = coins
    found = target.bind(data).log_density(Position(jnp.full((1, 1), probability), None))
    with pymc.Model() as model:
        target.model.build(COINS)
    expected = model.compile_logp(mode="FAST_COMPILE")({"probability": probability})
    np.testing.assert_allclose(found.log_prior[0] + found.log_likelihood[0], expected, rtol=1e-12)
    assert np.isfinite(expected) == (0 < probability < 1)
    if np.isfinite(expected):
        (slope,) = model.compile_dlogp(mode="FAST_COMPILE")({"probability": probability})
        np.testing.assert_allclose(found.gradient.shared[0, 0], slope, rtol=1e-9)


def regression(rows: Mapping[str, Any]) -> pymc.Model:
    """Return the model above, without its potential and mixture."""
    with pymc.Model() as model:
        weights = pymc.Normal("weights", 0, 2, shape=rows["x"].type.shape[1])
        noise = pymc.HalfNormal("noise", 1)
        pymc.Normal("y", rows["x"] @ weights, noise, observed=rows["y"])
    return model


def nothing(rows: Mapping[str, Any]) -> None:
    """Forget to return the model."""
    regression(rows)
