"""Outcomes are drawn by JAX as PyMC draws them, and have the log density that they have there."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pymc
import pytensor.tensor as pt
import pytest
from pytensor.link.jax.dispatch.random import jax_sample_fn
from pytensor.tensor.random import basic
from scipy import stats

from bayesmesh.models.pymc.graphs import Graphs

NUM_DRAWS = 20_000
CUTS = np.array([-1.0, 0.2, 1.5])

OUTCOMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "normal": (pymc.Normal, {"mu": 1, "sigma": 2}),
    "student_t": (pymc.StudentT, {"nu": 3, "mu": 1, "sigma": 2}),
    "cauchy": (pymc.Cauchy, {"alpha": 1, "beta": 2}),
    "half_normal": (pymc.HalfNormal, {"sigma": 2}),
    "half_cauchy": (pymc.HalfCauchy, {"beta": 2}),
    "half_student_t": (pymc.HalfStudentT, {"nu": 4, "sigma": 2}),
    "truncated_normal": (pymc.TruncatedNormal, {"mu": 1, "sigma": 2, "lower": 0, "upper": 2}),
    "log_normal": (pymc.LogNormal, {"mu": 1, "sigma": 0.5}),
    "logit_normal": (pymc.LogitNormal, {"mu": 1, "sigma": 0.5}),
    "laplace": (pymc.Laplace, {"mu": 1, "b": 2}),
    "asymmetric_laplace": (pymc.AsymmetricLaplace, {"mu": 1, "b": 2, "kappa": 0.7}),
    "logistic": (pymc.Logistic, {"mu": 1, "s": 2}),
    "gumbel": (pymc.Gumbel, {"mu": 1, "beta": 2}),
    "uniform": (pymc.Uniform, {"lower": 1, "upper": 4}),
    "exponential": (pymc.Exponential, {"lam": 2}),
    "gamma": (pymc.Gamma, {"alpha": 0.7, "beta": 3}),
    "inverse_gamma": (pymc.InverseGamma, {"alpha": 3, "beta": 2}),
    "chi_squared": (pymc.ChiSquared, {"nu": 3}),
    "wald": (pymc.Wald, {"mu": 2, "lam": 3, "alpha": 0.5}),
    "weibull": (pymc.Weibull, {"alpha": 1.5, "beta": 2}),
    "beta": (pymc.Beta, {"alpha": 0.7, "beta": 3}),
    "kumaraswamy": (pymc.Kumaraswamy, {"a": 2, "b": 3}),
    "pareto": (pymc.Pareto, {"alpha": 3, "m": 2}),
    "ex_gaussian": (pymc.ExGaussian, {"mu": 1, "sigma": 2, "nu": 3}),
    "von_mises": (pymc.VonMises, {"mu": 2, "kappa": 1.5}),
    "bernoulli": (pymc.Bernoulli, {"p": 0.3}),
    "binomial": (pymc.Binomial, {"n": 7, "p": 0.3}),
    "beta_binomial": (pymc.BetaBinomial, {"n": 7, "alpha": 2, "beta": 3}),
    "poisson": (pymc.Poisson, {"mu": 2.5}),
    "negative_binomial": (pymc.NegativeBinomial, {"mu": 3, "alpha": 2}),
    "zero_inflated_poisson": (pymc.ZeroInflatedPoisson, {"psi": 0.7, "mu": 3}),
    "zero_inflated_negative_binomial": (pymc.ZeroInflatedNegativeBinomial, {"psi": 0.7, "mu": 3, "alpha": 2}),
    "zero_inflated_binomial": (pymc.ZeroInflatedBinomial, {"psi": 0.7, "n": 7, "p": 0.3}),
    "discrete_uniform": (pymc.DiscreteUniform, {"lower": 1, "upper": 4}),
    "geometric": (pymc.Geometric, {"p": 0.3}),
    "categorical": (pymc.Categorical, {"p": [0.1, 0.6, 0.3]}),
    "ordered_logistic": (pymc.OrderedLogistic, {"eta": 0.5, "cutpoints": CUTS, "compute_p": False}),
    "ordered_probit": (pymc.OrderedProbit, {"eta": 0.5, "cutpoints": CUTS, "compute_p": False}),
    "normal_mixture": (pymc.NormalMixture, {"w": [0.2, 0.8], "mu": [-3.0, 3.0], "sigma": 0.5}),
}
"""Distribution -> its class and parameters."""


VECTORS: dict[str, tuple[Any, dict[str, Any]]] = {
    "multivariate_normal": (pymc.MvNormal, {"mu": [1.0, -1.0], "cov": [[2.0, 0.7], [0.7, 0.5]]}),
    "multivariate_student_t": (pymc.MvStudentT, {"nu": 4, "mu": [1.0, -1.0], "scale": [[2.0, 0.7], [0.7, 0.5]]}),
    "dirichlet": (pymc.Dirichlet, {"a": [0.5, 2.0, 3.0]}),
    "multinomial": (pymc.Multinomial, {"n": 9, "p": [0.5, 0.2, 0.3]}),
    "dirichlet_multinomial": (pymc.DirichletMultinomial, {"n": 9, "a": [0.5, 2.0, 3.0]}),
    "zero_sum_normal": (pymc.ZeroSumNormal, {"sigma": 2.0}),
}
"""Distribution of vectors -> its class and parameters."""


@pytest.mark.parametrize("name", VECTORS)
def test_entries_of_vectors_and_their_sums_have_the_distribution_of_pymc_s(name: str) -> None:
    make, parameters = VECTORS[name]
    length = 3 if name in ("dirichlet", "multinomial", "dirichlet_multinomial", "zero_sum_normal") else 2
    with pymc.Model():
        kept = pymc.draw(make("y", **parameters, shape=(NUM_DRAWS, length)), random_seed=1, mode="FAST_COMPILE")
    rows = {"y": pt.tensor("y", dtype=str(kept.dtype), shape=(None, length))}
    with pymc.Model() as model:
        pymc.Normal("slope", 0, 1)
        make("y", **parameters, observed=rows["y"])
    graphs = Graphs(model, rows, "some")
    assert graphs.has_predictions
    given = {"slope": jax.numpy.zeros(())}, {"y": jax.numpy.asarray(kept)}
    drawn = np.asarray(graphs.predict()[0](jax.random.key(0), *given))
    assert drawn.shape == kept.shape
    for weights in ([1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, -1]):
        sums = [each @ weights[:length] for each in (kept, drawn)]
        if np.issubdtype(kept.dtype, np.integer):
            counts = np.stack([np.bincount(each.astype(int) + 9, minlength=20) for each in sums])
            counts = counts[:, counts.sum(axis=0) > 0]
            assert stats.chi2_contingency(counts).pvalue > 1e-4
        else:
            assert stats.ks_2samp(*sums).pvalue > 1e-4


@pytest.mark.parametrize("name", OUTCOMES)
def test_draws_and_log_densities_are_those_of_pymc(name: str) -> None:
    make, parameters = OUTCOMES[name]
    with pymc.Model():
        kept = pymc.draw(make("y", **parameters, shape=NUM_DRAWS), random_seed=1, mode="FAST_COMPILE")
    rows = {"y": pt.tensor("y", dtype=str(kept.dtype), shape=(None,))}
    with pymc.Model() as model:
        pymc.Normal("slope", 0, 1)
        make("y", **parameters, observed=rows["y"])
    graphs = Graphs(model, rows, "some")
    assert graphs.has_predictions
    draw, log_prob, _ = graphs.predict()
    given = {"slope": jax.numpy.zeros(())}, {"y": jax.numpy.asarray(kept)}
    some = kept[:50]
    expected = pymc.logp(make.dist(**parameters), some).eval(mode="FAST_COMPILE")
    found = log_prob(given[0], {"y": jax.numpy.asarray(some)}, jax.numpy.asarray(some))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    drawn = np.asarray(draw(jax.random.key(0), *given))
    assert drawn.shape == kept.shape
    if np.issubdtype(kept.dtype, np.integer):
        counts = np.stack([np.bincount(each.astype(int), minlength=200)[:200] for each in (kept, drawn)])
        often = counts.sum(axis=0) >= 20
        counts = np.column_stack([counts[:, often], counts[:, ~often].sum(axis=1)])
        assert stats.chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue > 1e-4
    else:
        assert stats.ks_2samp(kept, drawn).pvalue > 1e-4


@pytest.mark.parametrize(
    ("kind", "parameters", "sd"),
    [(basic.PoissonRV, [1e9], 1e9**0.5), (basic.BinomialRV, [2e9, 0.5], 5e8**0.5)],
    ids=["poisson", "binomial"],
)
def test_large_counts_do_not_spread_further_in_single_precision(kind: type, parameters: list[float], sd: float) -> None:
    draw = jax_sample_fn.dispatch(kind)(None, None)
    drawn = np.asarray(draw(jax.random.key(2), (NUM_DRAWS,), "int64", *map(np.float32, parameters)), float)
    assert drawn.std() == pytest.approx(sd, rel=4 / (2 * NUM_DRAWS) ** 0.5)
    assert drawn.mean() == pytest.approx(1e9, abs=4 * sd / NUM_DRAWS**0.5)
