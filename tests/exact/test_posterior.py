"""Programs from start to last draw, against a posterior known in closed form."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from bayesmesh.config.registry import load_component
from bayesmesh.kernels.base import Density, DensityParts, Position
from bayesmesh.models.gaussian import Gaussian
from kernel_options import kernels_of_any_target

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 8, 400, 1000
FAMILY_ERROR = 1e-4

OPTIONS = {
    "hmc": {"num_leapfrog_steps": 4, "initial_step_size": 0.1, "target_acceptance": 0.98},
    "replica_exchange": {"num_leapfrog_steps": 2},
    "nuts, split": {"integrator": "split"},
}
"""At their defaults four steps, and three, are about a whole period of this target, and chains come back to where they were."""

MORE_CHAINS = {"random_walk": 8}
"""How many times as many chains, where a draw is worth less."""

ADJUSTED = [name for name in kernels_of_any_target() if load_component("kernel", name).is_adjusted]


def exact_posterior(case) -> tuple[np.ndarray, float]:
    """Mean (dimension,) and standard deviation of each coordinate of the conjugate normal posterior."""
    noise, prior = case.spec.constants["noise_scale"], case.options.prior_scale
    precision = len(case.rows["x"]) / noise**2 + 1 / prior**2
    return case.rows["x"].sum(axis=0) / noise**2 / precision, precision**-0.5


def compare(draws: np.ndarray, mean: np.ndarray, sd: float) -> np.ndarray:
    """z of the first and of the second moment, (2, dimension), gated by R-hat and by the effective sample size."""
    standard = (draws - mean) / sd
    scores = []
    for values, expected in ((standard, 0.0), (standard**2, 1.0)):
        for i in range(draws.shape[-1]):
            series = np.ascontiguousarray(values[..., i])
            # Inconclusive is not passed.
            assert array_stats.rhat(series) < 1.01
            assert array_stats.ess(series, method="mean") >= 400
            scores.append((series.mean() - expected) / array_stats.mcse(series, method="mean"))
    return np.asarray(scores)


IN_FLOAT64 = ("hmc", "nuts", "replica_exchange")
"""One kernel of each kind of step: a trajectory, a tree, and an exchange."""

ALIKE = ("hmc", "mala", "mams", "random_walk", "tempered_smc")
"""Kernels whose adaptation, exchange of chains and trajectories another kernel has too."""

RUNS = [
    *(
        pytest.param(kernel, "float32", (2, 3), marks=[pytest.mark.verify] * (kernel in ALIKE))
        for kernel in (*ADJUSTED, "nuts, split")
    ),
    *(pytest.param(kernel, "float64", (1, 1), marks=pytest.mark.verify) for kernel in IN_FLOAT64),
]
"""Every kernel in float32 over several devices, the harder way."""


@pytest.mark.parametrize(("kernel", "dtype", "mesh"), RUNS)
def test_draws_have_the_moments_of_the_posterior(kernel, dtype, mesh, make_case, build) -> None:
    case = make_case("gaussian", dtype, prior_scale=0.4)
    built = build(
        case, kernel.split(",")[0], num_chains=NUM_CHAINS * MORE_CHAINS.get(kernel, 1), num_warmup=NUM_WARMUP, most_draws=NUM_DRAWS, mesh=mesh, row_tile=5, **OPTIONS.get(kernel, {})
    )  # fmt: skip
    run = built.run(NUM_DRAWS)
    draws = np.swapaxes(run.draws["mean"], 0, 1).astype(np.float64)
    mean, sd = exact_posterior(case)
    scores = compare(draws, mean, sd)
    critical = stats.norm.isf(FAMILY_ERROR / 2 / len(scores))
    assert not (~(np.abs(scores) < critical)).any(), scores
    target_acceptance = built.program.kernel.numeric_options["target_acceptance"]
    # Split steps are exact in a normal, however long.
    most = 1.0 if "split" in kernel else 0.99
    assert min(0.5, 0.8 * target_acceptance) < run.statistics["acceptance_rate"].mean() < most
    assert not run.statistics.get("diverging", np.zeros(1)).any()
    # The test sees a posterior that is off by a tenth of its standard deviation, or a tenth too wide.
    assert (np.abs(compare(draws, mean + 0.1 * sd, sd)) > critical).any()
    assert (np.abs(compare(draws, mean, 1.1 * sd)) > critical).any()


def assert_parts_sum_to(density: Density, parts: DensityParts) -> None:
    np.testing.assert_allclose(parts.log_prior, density.log_prior, rtol=1e-12)
    np.testing.assert_allclose(parts.log_likelihood, density.log_likelihood, rtol=1e-12)
    total = jax.tree.map(jnp.add, parts.prior_gradient, parts.likelihood_gradient)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), total, density.gradient)


def test_the_log_density_is_the_posterior_s_up_to_a_constant(make_case, make_target) -> None:
    case = make_case("gaussian", prior_scale=0.4)
    target = make_target(case, num_devices=3, row_tile=4)
    mean, sd = exact_posterior(case)
    points = mean + 3 * sd * np.random.default_rng(0).standard_normal((20, len(mean)))
    bound, position = target.bind(target.lay_out(case.rows)), Position(jnp.asarray(points), None)
    found = bound.log_density(position)
    exact = stats.norm(mean, sd).logpdf(points).sum(axis=1)
    offset = found.log_prior + found.log_likelihood - exact
    np.testing.assert_allclose(offset, offset[0], rtol=1e-12)
    np.testing.assert_allclose(found.gradient.shared, (mean - points) / sd**2, rtol=1e-10, atol=1e-10)
    assert_parts_sum_to(found, bound.log_density_parts(position))
    assert isinstance(case.model, Gaussian)
