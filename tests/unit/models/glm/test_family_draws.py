"""Simulated outcomes of every family have SciPy's distribution, in either precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.models.glm.families.base import family_of
from bayesmesh.models.options import FAMILIES

NUM_DRAWS, ETA, TRIALS = 20_000, 0.7, 9
SHAPE, SIGMA, NU, BASELINE = 1.5, 2.0, 3.5, (0.2, 0.5, 0.3)
MEAN = np.exp(ETA)

CONTINUOUS = {
    "normal": stats.norm(ETA, SIGMA), "student_t": stats.t(NU, ETA, SIGMA), "gamma": stats.gamma(SHAPE, scale=MEAN / SHAPE),
}  # fmt: skip
LOGITS = np.array([0.0, ETA, -ETA])
LEVELS = np.diff(special.expit(np.concatenate([[-np.inf], special.logit(np.cumsum(BASELINE)[:-1]) - ETA, [np.inf]])))
DISCRETE = {
    "bernoulli": stats.bernoulli(special.expit(ETA)).pmf,
    "binomial": stats.binom(TRIALS, special.expit(ETA)).pmf,
    "poisson": stats.poisson(MEAN).pmf,
    "negative_binomial": stats.nbinom(SHAPE, SHAPE / (SHAPE + MEAN)).pmf,
    "categorical": lambda levels: np.append(special.softmax(LOGITS), np.zeros(500))[levels],
    "ordinal": lambda levels: np.append(LEVELS, np.zeros(500))[levels],
}


def draws(family: str, dtype: str) -> np.ndarray:
    eta = jnp.full((NUM_DRAWS,), ETA, dtype)
    if family == "categorical":
        eta = jnp.broadcast_to(jnp.asarray(LOGITS[1:], dtype), (NUM_DRAWS, 2))
    latents = {"sigma": SIGMA, "nu": NU, "shape": SHAPE, "baseline": BASELINE}
    given = {name: jnp.asarray(value, dtype) for name, value in latents.items()}
    rows = {"trials": jnp.full((NUM_DRAWS,), TRIALS)}
    return np.asarray(family_of(family).predict(eta, rows, given).sample(seed=jax.random.key(4)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_draws_have_the_distribution_of_the_family(family: str, dtype: str) -> None:
    found = draws(family, dtype)
    assert found.shape == (NUM_DRAWS,)
    if family in CONTINUOUS:
        assert stats.kstest(found, CONTINUOUS[family].cdf).pvalue > 1e-4
        return
    values = np.arange(60)
    expected = NUM_DRAWS * DISCRETE[family](values)
    counts = np.bincount(found.astype(int), minlength=60)
    assert (found == found.astype(int)).all()
    assert counts.sum() == NUM_DRAWS
    often = expected >= 5
    seen, known = (np.append(each[often], each[~often].sum()) for each in (counts[:60], expected))
    # The rest of a bounded distribution is empty.
    keep = known > 1e-6
    assert seen[~keep].sum() == 0
    assert stats.chisquare(seen[keep], known[keep] * seen[keep].sum() / known[keep].sum()).pvalue > 1e-4


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
