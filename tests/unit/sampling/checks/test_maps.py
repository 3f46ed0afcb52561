"""The maps of priors: TFP's on every kind of support, those that are refused, and a user's that are tried.

The nightly run has all of TFP's continuous distributions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tensorflow_probability.substrates import jax as tfp

from bayesmesh.config.settings import Settings
from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model
from bayesmesh.sampling.checks.maps import REPLACEMENTS, faults, known_fault, needs_trial
from bayesmesh.sampling.checks.model import check_model
from prior_draws import unlike_draws

tfd, tfb, linear = tfp.distributions, tfp.bijectors, tfp.tf2jax.linalg

IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
NUM_DRAWS = 4000 if IS_NIGHTLY else 500

ONE = jnp.ones((), jnp.float64)
THREE = jnp.ones(3, jnp.float64)
FACTOR = jnp.asarray([[1.0, 0, 0], [0.5, 2, 0], [0.1, -0.3, 0.7]])
KERNEL, PLACES = tfp.math.psd_kernels.ExponentiatedQuadratic(ONE, ONE), jnp.arange(3.0)[:, None]


def normals(*shape: int) -> Any:
    return tfd.Sample(tfd.Normal(0 * ONE, ONE), shape)


def image(distribution: Any, bijector: Any) -> Any:
    return tfd.TransformedDistribution(distribution, bijector)


SUPPORTS: dict[str, Callable[[], Any]] = {
    "positive, batch": lambda: tfd.Independent(tfd.Gamma(2 * THREE, THREE), 1),
    "interval": lambda: tfd.Uniform(-ONE, 2 * ONE),
    "simplex": lambda: tfd.Sample(tfd.Dirichlet(THREE + 1), 2),
    "ordered": lambda: image(normals(3), tfb.Ascending()),
    "correlations": lambda: tfd.CholeskyLKJ(3, 2 * ONE),
}
"""One distribution for each kind of support."""

ALL: dict[str, Callable[[], Any]] = {
    "Autoregressive": lambda: tfd.MarkovChain(tfd.Normal(0 * ONE, ONE), lambda _, x: tfd.Normal(x, ONE), num_steps=3),
    "BatchBroadcast": lambda: tfd.Independent(tfd.BatchBroadcast(tfd.Gamma(2 * ONE, ONE), (3,)), 1),
    "BatchReshape": lambda: tfd.Independent(tfd.BatchReshape(tfd.Beta(jnp.full(4, 2.0), jnp.full(4, 3.0)), (2, 2)), 2),
    "Beta": lambda: tfd.Beta(2 * ONE, 3 * ONE),
    "Cauchy": lambda: tfd.Cauchy(ONE, ONE),
    "Chi": lambda: tfd.Chi(3 * ONE),
    "Chi2": lambda: tfd.Chi2(3 * ONE),
    "CholeskyLKJ": lambda: tfd.Independent(tfd.CholeskyLKJ(3, jnp.asarray([1.5, 2.0])), 1),
    "ContinuousBernoulli": lambda: tfd.ContinuousBernoulli(probs=0.3 * ONE, dtype=jnp.float64),
    "DoublesidedMaxwell": lambda: tfd.DoublesidedMaxwell(ONE, ONE),
    "ExpGamma": lambda: tfd.ExpGamma(2 * ONE, ONE),
    "ExpInverseGamma": lambda: tfd.ExpInverseGamma(2 * ONE, ONE),
    "ExpRelaxedOneHotCategorical": lambda: tfd.ExpRelaxedOneHotCategorical(ONE, logits=jnp.arange(3.0)),
    "Exponential": lambda: tfd.Exponential(2 * ONE),
    "ExponentiallyModifiedGaussian": lambda: tfd.ExponentiallyModifiedGaussian(ONE, ONE, ONE),
    "Gamma": lambda: tfd.Gamma(2 * ONE, ONE),
    "GammaGamma": lambda: tfd.GammaGamma(2 * ONE, 3 * ONE, ONE),
    "GaussianProcess": lambda: tfd.GaussianProcess(KERNEL, PLACES),
    "GaussianProcessRegressionModel": lambda: tfd.GaussianProcessRegressionModel(
        KERNEL, PLACES, PLACES + 0.5, jnp.zeros(3), 0.1 * ONE
    ),
    "GeneralizedExtremeValue": lambda: tfd.GeneralizedExtremeValue(ONE, ONE, 0.2 * ONE),
    "GeneralizedExtremeValue below": lambda: tfd.GeneralizedExtremeValue(ONE, ONE, -0.2 * ONE),
    "GeneralizedNormal": lambda: tfd.GeneralizedNormal(ONE, ONE, 3 * ONE),
    "GeneralizedPareto": lambda: tfd.GeneralizedPareto(ONE, ONE, 0.2 * ONE),
    "GeneralizedPareto below": lambda: tfd.GeneralizedPareto(ONE, ONE, -0.2 * ONE),
    "Gumbel": lambda: tfd.Gumbel(ONE, ONE),
    "HalfCauchy": lambda: tfd.HalfCauchy(ONE, ONE),
    "HalfNormal": lambda: tfd.HalfNormal(ONE),
    "HalfStudentT": lambda: tfd.HalfStudentT(3 * ONE, ONE, ONE),
    "HiddenMarkovModel": lambda: tfd.HiddenMarkovModel(
        tfd.Categorical(probs=jnp.asarray([0.5, 0.5])),
        tfd.Categorical(probs=jnp.asarray([[0.9, 0.1], [0.2, 0.8]])),
        tfd.Normal(jnp.arange(2.0), jnp.ones(2)),
        3,
    ),
    "Horseshoe": lambda: tfd.Horseshoe(ONE),
    "InverseGamma": lambda: tfd.InverseGamma(3 * ONE, ONE),
    "JohnsonSU": lambda: tfd.JohnsonSU(ONE, 2 * ONE, ONE, ONE),
    "Kumaraswamy": lambda: tfd.Kumaraswamy(2 * ONE, 3 * ONE),
    "LambertWNormal": lambda: tfd.LambertWNormal(ONE, ONE, 0.1 * ONE),
    "Laplace": lambda: tfd.Laplace(ONE, ONE),
    "LinearGaussianStateSpaceModel": lambda: tfd.LinearGaussianStateSpaceModel(
        3, jnp.eye(1), *(tfd.MultivariateNormalDiag(jnp.zeros(1), jnp.ones(1)),), jnp.eye(1),
        *(tfd.MultivariateNormalDiag(jnp.zeros(1), jnp.ones(1)),) * 2
    ),
    "LogLogistic": lambda: tfd.LogLogistic(ONE, 0.3 * ONE),
    "LogNormal": lambda: tfd.LogNormal(ONE, ONE),
    "Logistic": lambda: tfd.Logistic(ONE, ONE),
    "LogitNormal": lambda: tfd.LogitNormal(ONE, ONE),
    "MarkovChain": lambda: tfd.MarkovChain(tfd.Dirichlet(2 * THREE), lambda _, x: tfd.Dirichlet(1 + 5 * x), num_steps=2),
    "Moyal": lambda: tfd.Moyal(ONE, ONE),
    "MultivariateNormalDiag": lambda: tfd.MultivariateNormalDiag(THREE, THREE),
    "MultivariateNormalDiagPlusLowRank": lambda: tfd.MultivariateNormalDiagPlusLowRank(THREE, THREE, jnp.ones((3, 1))),
    "MultivariateNormalDiagPlusLowRankCovariance": lambda: tfd.MultivariateNormalDiagPlusLowRankCovariance(
        THREE, THREE, jnp.ones((3, 1))
    ),
    "MultivariateNormalFullCovariance": lambda: tfd.MultivariateNormalFullCovariance(THREE, FACTOR @ FACTOR.T),
    "MultivariateNormalTriL": lambda: tfd.Sample(tfd.MultivariateNormalTriL(THREE, FACTOR), 2),
    "MultivariateNormalLinearOperator": lambda: tfd.MultivariateNormalLinearOperator(
        THREE, linear.LinearOperatorLowerTriangular(FACTOR)
    ),
    "MultivariateStudentTLinearOperator": lambda: tfd.MultivariateStudentTLinearOperator(
        5 * ONE, THREE, linear.LinearOperatorLowerTriangular(FACTOR)
    ),
    "NoncentralChi2": lambda: tfd.NoncentralChi2(3 * ONE, ONE),
    "NormalInverseGaussian": lambda: tfd.NormalInverseGaussian(ONE, 0.3 * ONE, 2 * ONE, ONE),
    "PERT": lambda: tfd.PERT(0 * ONE, ONE, 3 * ONE),
    "Pareto": lambda: tfd.Pareto(3 * ONE, 2 * ONE),
    "RelaxedBernoulli": lambda: tfd.RelaxedBernoulli(ONE, logits=0.3 * ONE),
    "RelaxedOneHotCategorical": lambda: tfd.RelaxedOneHotCategorical(ONE, logits=jnp.arange(3.0)),
    "SigmoidBeta": lambda: tfd.SigmoidBeta(2 * ONE, 3 * ONE),
    "SinhArcsinh": lambda: tfd.SinhArcsinh(ONE, ONE, 0.5 * ONE, 1.2 * ONE),
    "SinhArcsinh of another": lambda: tfd.SinhArcsinh(ONE, ONE, 0.5 * ONE, 1.2 * ONE, distribution=tfd.Gamma(2 * ONE, ONE)),
    "StudentT": lambda: tfd.StudentT(4 * ONE, ONE, ONE),
    "StudentTProcess": lambda: tfd.StudentTProcess(5 * ONE, KERNEL, PLACES),
    "image: positive": lambda: image(tfd.Gamma(2 * ONE, ONE), tfb.Power(2 * ONE)),
    "image: simplex": lambda: image(normals(2), tfb.SoftmaxCentered()),
    "image: simplex by sticks": lambda: image(normals(2), tfb.IteratedSigmoidCentered()),
    "image: lower-triangular": lambda: image(normals(6), tfb.FillTriangular()),
    "image: Cholesky factor": lambda: image(normals(6), tfb.FillScaleTriL(diag_shift=None)),
    "image: symmetric": lambda: image(
        image(normals(6), tfb.FillScaleTriL(diag_shift=None)), tfb.CholeskyOuterProduct()
    ),
    "image: correlations": lambda: image(normals(3), tfb.CorrelationCholesky()),
    "image: padded": lambda: image(normals(2), tfb.Pad(axis=-1)),
    "image: direction": lambda: image(normals(2), tfb.UnitVector()),
    "image: linear": lambda: image(tfd.Sample(tfd.Gamma(2 * ONE, ONE), 3), tfb.ScaleMatvecTriL(FACTOR)),
    "image: sums": lambda: image(tfd.Sample(tfd.Gamma(2 * ONE, ONE), 3), tfb.Cumsum()),
    "image: reciprocal": lambda: image(tfd.Gamma(2 * ONE, ONE), tfb.Reciprocal()),
    "Triangular": lambda: tfd.Triangular(0 * ONE, 2 * ONE, ONE),
    "TruncatedCauchy": lambda: tfd.TruncatedCauchy(ONE, ONE, 0 * ONE, 3 * ONE),
    "TruncatedNormal": lambda: tfd.TruncatedNormal(ONE, ONE, 0 * ONE, 3 * ONE),
    "TwoPieceNormal": lambda: tfd.TwoPieceNormal(ONE, ONE, 2 * ONE),
    "TwoPieceStudentT": lambda: tfd.TwoPieceStudentT(4 * ONE, ONE, ONE, 2 * ONE),
    "VonMises": lambda: tfd.VonMises(2 * ONE, 2 * ONE),
    "Weibull": lambda: tfd.Weibull(2 * ONE, ONE),
}  # fmt: skip
"""TFP's continuous distributions that are used as they are, of at most six coordinates."""

NO_PRIORS = {
    *("AutoCompositeTensorDistribution", "Distribution"),  # bases
    *("Bernoulli", "BetaBinomial", "Binomial", "Categorical", "DeterminantalPointProcess", "DirichletMultinomial"),
    *("FiniteDiscrete", "Geometric", "Multinomial", "NegativeBinomial", "OneHotCategorical", "OrderedLogistic"),
    *("PlackettLuce", "Poisson", "PoissonLogNormalQuadratureCompound", "ProbitBernoulli", "QuantizedDistribution"),
    *("Skellam", "StoppingRatioLogistic", "ZeroInflatedNegativeBinomial", "Zipf"),  # discrete
    *("Deterministic", "VectorDeterministic"),  # nothing to sample
    *("Empirical", "Inflated", "Mixture", "MixtureSameFamily"),  # no map
    *("JointDistribution", "JointDistributionCoroutine", "JointDistributionCoroutineAutoBatched"),
    *("JointDistributionNamed", "JointDistributionNamedAutoBatched", "JointDistributionSequential"),
    *("JointDistributionSequentialAutoBatched",),  # priors themselves
    *(
        "FlatDirichlet",
        "LambertWDistribution",
        "StudentTProcessRegressionModel",
        "VariationalGaussianProcess",
    ),  # as others
}
OF_SUPPORTS = {"Dirichlet", "Independent", "Normal", "Sample", "TransformedDistribution", "Uniform"}


def test_every_distribution_of_tfp_is_in_one_list() -> None:
    every = {
        name
        for name, value in vars(tfd).items()
        if isinstance(value, type) and issubclass(value, tfd.Distribution) and not name.startswith("_")
    }
    listed = NO_PRIORS | OF_SUPPORTS | {name.split(" ")[0] for name in ALL} | set(REPLACEMENTS)
    assert every - listed == set()


@pytest.mark.parametrize("name", SUPPORTS if not IS_NIGHTLY else {**SUPPORTS, **ALL})
def test_draws_of_a_prior_follow_its_density_in_unconstrained_space(name: str) -> None:
    distribution = {**SUPPORTS, **ALL}[name]()
    assert known_fault(distribution) is None
    prior = tfd.JointDistributionNamed({"a": distribution})
    assert unlike_draws(prior, NUM_DRAWS) == []
    assert list(faults(prior)) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: tfd.VonMisesFisher(jnp.asarray([1.0, 0, 0]), 2 * ONE),
        lambda: tfd.Independent(tfd.PowerSpherical(jnp.eye(3)[:2], 2 * jnp.ones(2)), 1),
        lambda: tfd.Sample(tfd.SphericalUniform(3, dtype=jnp.float64), 2),
        lambda: image(tfd.LKJ(3, 2 * ONE), tfb.Scale(2 * ONE)),
        lambda: tfd.Masked(tfd.Gamma(2 * ONE, ONE), False),
    ],
)
def test_a_distribution_with_a_wrong_map_is_refused_and_would_not_pass(make: Callable[[], Any]) -> None:
    fault, remedy = known_fault(make()) or ("", "")
    assert "cannot be used in a prior" in fault
    assert remedy
    if IS_NIGHTLY:
        assert unlike_draws(tfd.JointDistributionNamed({"a": make()}), NUM_DRAWS)


class Twice(tfb.Bijector):
    """The exponential with twice its log Jacobian."""

    def __init__(self) -> None:
        super().__init__(forward_min_event_ndims=0)

    def _forward(self, x: jax.Array) -> jax.Array:
        return jnp.exp(x)

    def _inverse(self, y: jax.Array) -> jax.Array:
        return jnp.log(y)

    def _forward_log_det_jacobian(self, x: jax.Array) -> jax.Array:
        return 2 * x


class Positive(tfd.Normal):
    """A normal distribution whose map reaches positive values only."""

    def _default_event_space_bijector(self) -> Any:
        return tfb.Exp()


class Whole:
    """A prior that is not TFP's."""

    def __init__(self, distribution: Any, bijector: Any) -> None:
        self._distribution, self._bijector = distribution, tfb.JointMap({"a": bijector})

    def sample(self, *, seed: jax.Array) -> dict[str, jax.Array]:
        return {"a": self._distribution.sample(seed=seed)}

    def experimental_default_event_space_bijector(self) -> Any:
        return self._bijector


RIGHT = tfb.Inline(jnp.exp, jnp.log, forward_log_det_jacobian_fn=lambda x: x, forward_min_event_ndims=0)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: image(tfd.Normal(0 * ONE, ONE), RIGHT), ""),
        (lambda: image(tfd.Normal(0 * ONE, ONE), Twice()), "the log Jacobian of its map is "),
        (lambda: Positive(0 * ONE, ONE), "draws do not return from the map to unconstrained space"),
        (lambda: image(tfd.Normal(0 * ONE, ONE), tfb.Square()), "Square does not map Normal one to one"),
        (lambda: tfd.TruncatedNormal(0 * ONE, ONE, 0 * ONE, jnp.inf * ONE), "draws do not return"),
    ],
)
def test_a_map_of_the_user_is_tried(make: Callable[[], Any], problem: str) -> None:
    distribution = make()
    prior = tfd.JointDistributionNamed({"mean": tfd.Normal(0 * ONE, ONE), "a": lambda mean: distribution})
    assert needs_trial(prior, {"a": distribution})
    found = list(faults(prior))
    assert [name for name, _ in found[:1]] == ["a"] * bool(problem)
    assert not problem or problem in found[0][1]


def test_a_prior_of_the_user_is_tried_as_a_whole() -> None:
    simplex = Whole(tfd.Dirichlet(2 * THREE), tfb.SoftmaxCentered())
    assert needs_trial(simplex, {})
    assert list(faults(simplex)) == []
    ((name, problem),) = faults(Whole(tfd.Normal(0 * ONE, ONE), tfb.Exp()))
    assert name == "a"
    assert "draws do not return" in problem


class Options(Settings):
    """No options."""


class Direction(Model):
    """A model with a prior on the sphere, and one with a wrong Jacobian."""

    pretty_name = "Direction"
    offers = ()
    distribution: Any

    def prior(self, data_spec: Any) -> Any:
        scale = tfd.HalfNormal(jnp.ones((), data_spec.dtype))
        return tfd.JointDistributionNamed({"scale": scale, "a": lambda scale: self.distribution(scale)})

    def log_likelihood(self, latents: Any, rows: Any) -> jax.Array:
        return rows["x"] * latents["scale"]

    def predict(self, latents: Any, inputs: Any) -> Any:
        raise NotImplementedError

    def summaries(self, latents: Any, rows: Any) -> Any:
        return {"scale": latents["scale"]}


@pytest.mark.parametrize(
    ("distribution", "problem"),
    [
        (
            lambda scale: tfd.VonMisesFisher(jnp.eye(3, dtype=scale.dtype)[0], scale),
            "'a': tfd.VonMisesFisher cannot be",
        ),
        (lambda scale: image(tfd.Normal(0 * scale, scale), Twice()), "latent 'a': the log Jacobian of its map is "),
    ],
)
def test_a_model_with_a_wrong_map_is_refused(distribution: Callable[[Any], Any], problem: str) -> None:
    model = type("Mine", (Direction,), {"distribution": staticmethod(distribution)})
    spec = DataSpec(8, {"x": FieldSpec((), "float64")}, {}, "float64", (), {}, {}, {})
    with pytest.raises(ConfigError, match=problem) as caught:
        check_model(model, Options(), spec)
    assert "prior" in caught.value.message
    assert caught.value.remedy
