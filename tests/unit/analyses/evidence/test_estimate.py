"""The digest of outcomes, by which evidences of the same rows are known, whatever their order."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.analyses._density import LogDensity
from bayesmesh.analyses.base import BoundModel
from bayesmesh.analyses.evidence.analysis import Evidence
from bayesmesh.analyses.evidence.bridge_sampling import bridge
from bayesmesh.analyses.evidence.estimate import combine_groups, estimate_evidence, outcome_digest
from bayesmesh.analyses.evidence.table import read_evidence
from bayesmesh.analyses.options import EvidenceOptions as Options
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.declarations import declared
from bayesmesh.data.base import Dataset, DataSpec, FieldSpec
from bayesmesh.data.sharding import shard
from bayesmesh.data.shards import Shards
from bayesmesh.kernels.base import Position
from bayesmesh.kernels.targets import FunctionTarget
from bayesmesh.kernels.tempered_smc import Options as TemperedOptions
from bayesmesh.kernels.tempered_smc import TemperedSmc
from bayesmesh.models.base import Model
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.layout import CHAIN, DRAW, DataLayout, ExperimentLayout
from bayesmesh.store.posterior.reader import Posterior, open_posterior
from bayesmesh.store.scores import digest_outcomes

Y = np.array([3.0, 1.0, 2.0, 5.0, 4.0])


class Plain(Model):
    pretty_name = "Plain"
    offers = ()

    def __init__(self) -> None:
        pass

    prior = log_likelihood = predict = summaries = lambda *_: None  # type: ignore[assignment]

    def outcome(self, rows: Any) -> Any:
        return rows["y"]


def bound(model: Model, order: np.ndarray) -> BoundModel:
    shards = SimpleNamespace(blocks=lambda: iter([{"y": Y[order][:2]}, {"y": Y[order][2:]}]), source_rows=lambda: order)
    return BoundModel(model, DataSpec(len(Y), {"y": FieldSpec((), "float64")}, {}, "float64"), shards)  # type: ignore[arg-type]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 1, 3]])
def test_the_digest_is_that_of_the_source(order: list[int]) -> None:
    assert outcome_digest(bound(Plain(), np.array(order))) == digest_outcomes(Y)


tfd = tfp.distributions
IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
SHAPE = (4, 1000)
NUM_ROWS = 60
ACCURACY = 0.1
"""In nats: what the estimates are held to."""


@pytest.fixture(autouse=True, scope="module")
def _double_precision() -> None:
    jax.config.update("jax_enable_x64", True)


class Conjugate(Model):
    """Rows ``y``, and ``x`` for a regression."""

    pretty_name = "Conjugate"
    offers = ()

    def predict(self, latents: Any, inputs: Any) -> Any:
        raise NotImplementedError("not asked for")

    def outcome(self, rows: Any) -> Any:
        return rows["y"]

    def summaries(self, latents: Any, rows: Any) -> Any:
        return latents


class NormalMean(Conjugate):
    def prior(self, data_spec: Any) -> Any:
        return tfd.JointDistributionNamed({"mean": tfd.Normal(jnp.zeros((), data_spec.dtype), 5.0)})

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Normal(latents["mean"], 1.5).log_prob(rows["y"])


class SquaredMean(NormalMean):
    """Two modes with opposite signs."""

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Normal(latents["mean"] ** 2, 1.5).log_prob(rows["y"])


class PoissonRate(Conjugate):
    def prior(self, data_spec: Any) -> Any:
        return tfd.JointDistributionNamed({"rate": tfd.Gamma(jnp.asarray(2.0, data_spec.dtype), 0.5)})

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Poisson(latents["rate"]).log_prob(rows["y"])


class Share(Conjugate):
    def prior(self, data_spec: Any) -> Any:
        return tfd.JointDistributionNamed({"share": tfd.Beta(jnp.asarray(1.0, data_spec.dtype), 3.0)})

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Bernoulli(probs=latents["share"]).log_prob(rows["y"])


class Regression(Conjugate):
    """Coefficients given the variance are normal, and the variance inverse gamma."""

    def prior(self, data_spec: Any) -> Any:
        one = jnp.ones((), data_spec.dtype)
        return tfd.JointDistributionNamed({
            "variance": tfd.InverseGamma(3 * one, 2 * one),
            "coefficients": lambda variance: tfd.Sample(tfd.Normal(0 * one, 2 * jnp.sqrt(variance)), 4),
        })  # fmt: skip

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Normal(rows["x"] @ latents["coefficients"], jnp.sqrt(latents["variance"])).log_prob(rows["y"])


class Logistic(Conjugate):
    """Not conjugate."""

    def prior(self, data_spec: Any) -> Any:
        one = jnp.ones((), data_spec.dtype)
        return tfd.JointDistributionNamed({"coefficients": tfd.Sample(tfd.Normal(0 * one, 2 * one), 4)})

    def log_likelihood(self, latents: Any, rows: Any) -> Any:
        return tfd.Bernoulli(logits=rows["x"] @ latents["coefficients"]).log_prob(rows["y"])


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with its rows, exact draws of its posterior, and the log evidence."""

    model: type[Model]
    rows: dict[str, np.ndarray]
    draws: dict[str, np.ndarray]
    exact: float


def normal_mean(generator: np.random.Generator) -> Case:
    y = 0.8 + 1.5 * generator.standard_normal(NUM_ROWS)
    precision = 1 / 25 + NUM_ROWS / 2.25
    draws = y.sum() / 2.25 / precision + generator.standard_normal(SHAPE) / math.sqrt(precision)
    covariance = 2.25 * np.eye(NUM_ROWS) + 25
    return Case(
        NormalMean, {"y": y}, {"mean": draws}, stats.multivariate_normal.logpdf(y, np.zeros(NUM_ROWS), covariance)
    )


def poisson_rate(generator: np.random.Generator) -> Case:
    y = generator.poisson(3, NUM_ROWS)
    shape, rate = 2 + y.sum(), 0.5 + NUM_ROWS
    exact = 2 * math.log(0.5) - gammaln(2) + gammaln(shape) - shape * math.log(rate) - gammaln(y + 1).sum()
    return Case(PoissonRate, {"y": y.astype(float)}, {"rate": generator.gamma(shape, 1 / rate, SHAPE)}, exact)


def share(generator: np.random.Generator) -> Case:
    y = (generator.random(NUM_ROWS) < 0.05).astype(np.int32)
    a, b = 1 + y.sum(), 3 + NUM_ROWS - y.sum()
    return Case(Share, {"y": y}, {"share": generator.beta(a, b, SHAPE)}, float(betaln(a, b) - betaln(1, 3)))


def regression(generator: np.random.Generator) -> Case:
    x = generator.standard_normal((NUM_ROWS, 4)) @ np.array(
        [[1, 0.9, 0, 0], [0, 0.3, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2]]
    )
    y = x @ np.array([0.5, -1, 0.2, 0]) + 0.7 * generator.standard_normal(NUM_ROWS)
    precision = x.T @ x + np.eye(4) / 4
    centre = np.linalg.solve(precision, x.T @ y)
    shape, rate = 3 + NUM_ROWS / 2, 2 + 0.5 * (y @ y - centre @ precision @ centre)
    variance = rate / generator.gamma(shape, 1, SHAPE)
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    draws = centre + np.sqrt(variance)[..., None] * (generator.standard_normal((*SHAPE, 4)) @ factor.T)
    # A multivariate t with six degrees of freedom.
    exact = stats.multivariate_t.logpdf(y, np.zeros(NUM_ROWS), (np.eye(NUM_ROWS) + 4 * x @ x.T) * 2 / 3, df=6)
    return Case(Regression, {"y": y, "x": x}, {"variance": variance, "coefficients": draws}, float(exact))


CASES: dict[str, Callable[[np.random.Generator], Case]] = {
    "regression": regression, "normal mean": normal_mean, "poisson rate": poisson_rate, "share": share
}  # fmt: skip


def bind(folder: Path, model: type[Model], rows: dict[str, np.ndarray]) -> BoundModel:
    layout = DataLayout(folder, "data", "all")
    shard(Dataset(rows), DataSettings(held_out_fraction=0.0), layout)
    shards = Shards(layout.shards)
    spec = shards.spec("float64")
    return BoundModel(model(Options(), spec), spec, shards)


def write_posterior(folder: Path, draws: dict[str, np.ndarray]) -> Posterior:
    layout = ExperimentLayout(folder, "one")
    group = open_group(layout.posterior, "w").create_group("posterior")
    for name, values in draws.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    return open_posterior(layout.posterior)


@pytest.mark.parametrize("name", CASES)
def test_bridge_sampling_finds_the_evidence_of_conjugate_models(name: str, tmp_path: Path) -> None:
    case = CASES[name](np.random.default_rng(5))
    bound, posterior = bind(tmp_path, case.model, case.rows), write_posterior(tmp_path, case.draws)
    files = declared("evidence").files(tmp_path / "one")
    files["evidence.csv"].parent.mkdir(parents=True)
    said = estimate_evidence(bound, posterior, Options(), files["evidence.csv"])
    found, *by_prior = read_evidence(files["evidence.csv"])
    assert len(by_prior) == (name != "regression")
    assert all(abs(each.log_evidence - case.exact) < 4 * each.error for each in by_prior)
    assert abs(found.log_evidence - case.exact) < min(ACCURACY, 4 * found.error)
    assert found.error < 0.02
    assert found.num_draws == 4000
    assert said.startswith("bridge ")
    assert Evidence(Options()).cell(files).startswith("log evidence −")
    assert (
        "The log evidence (the log of the mean likelihood under the prior) is"
        in Evidence(Options()).section(files).body
    )


def test_draws_of_the_prior_reveal_a_mode_that_no_chain_met(tmp_path: Path) -> None:
    y = 4 + 1.5 * np.random.default_rng(1).standard_normal(NUM_ROWS)
    grid = np.linspace(1, 3, 4001)
    log_density = stats.norm.logpdf(grid, 0, 5) + stats.norm.logpdf(y[:, None], grid**2, 1.5).sum(axis=0)
    weights = np.exp(log_density - log_density.max())
    draws = np.random.default_rng(2).choice(grid, SHAPE, p=weights / weights.sum())
    bound, posterior = bind(tmp_path, SquaredMean, {"y": y}), write_posterior(tmp_path, {"mean": draws})
    path = tmp_path / "evidence.csv"
    estimate_evidence(bound, posterior, Options(), path)
    (doubt,) = Evidence(Options()).section({"evidence.csv": path}).doubts
    assert "above that from the draws" in doubt
    assert re.search(r"about (4[4-9]|5[0-6])% of the posterior mass", doubt), doubt
    both = np.where(np.random.default_rng(3).random(SHAPE) < 0.5, draws, -draws)
    estimate_evidence(bound, write_posterior(tmp_path, {"mean": both}), Options(), path)
    assert not Evidence(Options()).section({"evidence.csv": path}).doubts


def run_tempered(bound: BoundModel, num_groups: int, num_chains: int, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the log evidence of each group, and positions (chain, draw, coordinate) after warmup."""
    density, num_warmup = LogDensity(bound), 160
    rows = {k: jnp.asarray(v) for k, v in bound.shards.read_rows(0, NUM_ROWS).items()}
    every = jnp.ones(NUM_ROWS, bool)
    target = FunctionTarget(lambda q: density._sum_rows(q, rows, jnp.arange(NUM_ROWS), every), density._log_prior)

    @jax.jit
    @jax.vmap
    def run(seed: jax.Array) -> Any:
        kernel = TemperedSmc(TemperedOptions(effective_share=0.9), num_warmup)
        keys = jax.random.split(jax.random.key(seed), num_chains)
        draws = jax.vmap(lambda key: density._prior.sample(seed=key))(keys)
        start = Position(jax.vmap(density._flatten)(draws), None)

        def keys_at(i: Any) -> jax.Array:
            return jax.vmap(lambda key: jax.random.fold_in(key, 1 + i))(keys)

        state = kernel.init(keys_at(10_000), start, target)

        def step(carry: Any, i: jax.Array) -> Any:
            state, adaptation = carry
            is_adapting = i < num_warmup
            after, info = kernel.step(keys_at(i), state, target, kernel.tuning(adaptation, is_adapting))
            adapted = kernel.adapt(adaptation, state, after, info, target)
            adaptation = jax.tree.map(lambda new, old: jnp.where(is_adapting, new, old), adapted, adaptation)
            return (after, adaptation), (after.position.shared, info.log_evidence)

        begin = (state, kernel.init_adaptation(state, target))
        return jax.lax.scan(step, begin, jnp.arange(num_warmup + num_draws))[1]

    positions, log_evidence = jax.device_get(run(jnp.arange(num_groups)))
    kept = np.moveaxis(positions[:, num_warmup:], 1, 2)
    return log_evidence[:, -1], kept.reshape(-1, num_draws, kept.shape[-1])


if IS_NIGHTLY:

    @pytest.mark.parametrize("name", CASES)
    def test_tempered_chains_find_the_evidence_of_conjugate_models(name: str, tmp_path: Path) -> None:
        case = CASES[name](np.random.default_rng(5))
        log_evidence, _ = run_tempered(bind(tmp_path, case.model, case.rows), 16, 256, 1)
        found = combine_groups(log_evidence, 16 * 256)
        assert found.error < ACCURACY / 2
        assert abs(found.log_evidence - case.exact) < min(ACCURACY, 4 * found.error)

    def test_both_methods_agree_where_there_is_no_closed_form(tmp_path: Path) -> None:
        generator = np.random.default_rng(8)
        x = generator.standard_normal((NUM_ROWS, 4))
        y = (generator.random(NUM_ROWS) < 1 / (1 + np.exp(-2 * x[:, 0]))).astype(np.int32)
        bound = bind(tmp_path, Logistic, {"x": x, "y": y})
        log_evidence, positions = run_tempered(bound, 16, 128, 24)
        density, one = LogDensity(bound), combine_groups(log_evidence, 16 * 256)
        other = bridge(
            positions[::64], functools.partial(lambda d, q: d.log_prior(q) + d.log_likelihood(q), density), 0
        )
        assert abs(one.log_evidence - other.log_constant) < 3 * math.hypot(one.error, other.error)


def test_errors_of_bridge_sampling_are_those_of_repeated_estimates() -> None:
    """Of a skewed density in three coordinates whose draws are autocorrelated; its integral is 1."""

    def log_density(points: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return stats.gumbel_r.logpdf(points).sum(axis=-1)

    found = []
    for seed in range(40):
        generator = np.random.default_rng([3, seed])
        z = generator.standard_normal((4, 400, 3))
        for i in range(1, 400):
            z[:, i] = 0.6 * z[:, i - 1] + 0.8 * z[:, i]
        found.append(bridge(stats.gumbel_r.ppf(stats.norm.cdf(z)), log_density, seed))
    errors = np.array([each.error for each in found])
    off = np.array([each.log_constant for each in found])
    assert (np.abs(off) < 3 * errors).mean() >= 0.95
    assert 0.5 < np.sqrt((errors**2).mean()) / off.std(ddof=1) < 2
    assert abs(off.mean()) < 4 * off.std(ddof=1) / math.sqrt(40)
