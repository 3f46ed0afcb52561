"""Simulated counts have SciPy's distribution at every mean, in either precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.models.glm.families.base import family_of

NUM_DRAWS, ETA = 20_000, 0.7


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", ["poisson", "binomial", "negative_binomial"])
def test_draws_of_counts_are_right_and_cheap_at_every_mean(family: str, dtype: str) -> None:
    """A sampler that counts up to the mean would not end, and one that rounds in float32 spreads too far."""
    means = 10.0 ** np.array([0, 3, 6, 9])
    shapes = np.array([0.3, 1e5])
    eta = np.log(means) if family != "binomial" else np.full(len(means), ETA)
    rows = {"trials": jnp.asarray(np.repeat(means, NUM_DRAWS), jnp.int32)}
    given = jnp.asarray(np.repeat(eta, NUM_DRAWS), dtype)
    exact = np.asarray(given[::NUM_DRAWS], float)
    found, known = {}, {}
    for shape in shapes if family == "negative_binomial" else shapes[:1]:
        drawn = (
            family_of(family).predict(given, rows, {"shape": jnp.asarray(shape, dtype)}).sample(seed=jax.random.key(5))
        )
        for place, mean in enumerate(means):
            found[mean, shape] = np.asarray(drawn, float)[place * NUM_DRAWS :][:NUM_DRAWS]
            known[mean, shape] = {
                "poisson": stats.poisson(np.exp(exact[place])),
                "binomial": stats.binom(mean, special.expit(exact[place])),
                "negative_binomial": stats.nbinom(shape, shape / (shape + np.exp(exact[place]))),
            }[family]
    for at, draws_there in found.items():
        # Uniform if the distribution is right, after spreading each count over its own probability.
        below, up_to = (known[at].cdf(draws_there - lower) for lower in (1, 0))
        spread = below + np.random.default_rng(6).random(NUM_DRAWS) * (up_to - below)
        assert stats.kstest(spread, "uniform").pvalue > 1e-4, at
        assert draws_there.mean() == pytest.approx(known[at].mean(), abs=4.5 * known[at].std() / NUM_DRAWS**0.5), at
