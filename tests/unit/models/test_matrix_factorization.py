"""Matrix factorisation against SciPy, its fast path at extremes, and what the likelihood cannot tell apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.models.matrix_factorization import _sum_log1p

WIDTH = 3


@pytest.fixture
def case(make_case):
    return make_case("matrix_factorization", width=WIDTH, prior_scale=0.7)


@pytest.fixture
def latents(case) -> dict[str, jax.Array]:
    return case.model.prior(case.spec).sample(seed=jax.random.key(1))


def test_prior_and_likelihood_are_scipy_s(case) -> None:
    prior, log_likelihood = case.model.prior(case.spec), jax.jit(case.model.log_likelihood)
    watched = case.rows["watched"]
    users, films = watched.shape
    shapes = {
        "user_embeddings": (users, WIDTH), "film_embeddings": (films, WIDTH), "user_biases": (users,), "film_biases": (films,)
    }  # fmt: skip
    for seed in range(20):
        generator = np.random.default_rng(seed)
        z = {k: generator.standard_normal(s) for k, s in shapes.items()}
        logits = z["user_embeddings"] @ z["film_embeddings"].T + z["user_biases"][:, None] + z["film_biases"]
        expected = stats.bernoulli(1 / (1 + np.exp(-logits))).logpmf(watched).sum(axis=1)
        np.testing.assert_allclose(log_likelihood(z, case.arrays), expected, rtol=1e-10)
        both = sum(stats.norm(0, 0.7).logpdf(v).sum() for v in z.values())
        np.testing.assert_allclose(prior.log_prob({k: jnp.asarray(v) for k, v in z.items()}), both, rtol=1e-10)


def test_summaries_and_likelihood_ignore_a_rotation_of_the_embeddings(case, latents) -> None:
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((WIDTH, WIDTH)))[0]
    turned = latents | {k: latents[k] @ rotation for k in ("user_embeddings", "film_embeddings")}
    before, after = (case.model.summaries(z, case.arrays) for z in (latents, turned))
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-9, atol=1e-12)
    likelihoods = [case.model.log_likelihood(z, case.arrays) for z in (latents, turned)]
    np.testing.assert_allclose(likelihoods[0], likelihoods[1], rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [0.0, 1e-4, 40.0, 1e4])
def test_the_fast_path_is_right_where_logits_are_extreme(case, dtype, size) -> None:
    case = case.with_dtype(dtype)
    latents = {k: size * v for k, v in case.model.prior(case.spec).sample(seed=jax.random.key(2)).items()}
    is_row = jnp.ones(case.spec.num_rows, bool)
    value, gradient = case.model.log_likelihood_and_gradient(latents, case.arrays, is_row)
    z = {k: np.asarray(v, np.float64) for k, v in latents.items()}
    logits = z["user_embeddings"] @ z["film_embeddings"].T + z["user_biases"][:, None] + z["film_biases"]
    watched = case.rows["watched"]
    residual = watched - stats.logistic.cdf(logits)
    expected = {
        "user_embeddings": residual @ z["film_embeddings"], "film_embeddings": residual.T @ z["user_embeddings"],
        "user_biases": residual.sum(axis=1), "film_biases": residual.sum(axis=0),
    }  # fmt: skip
    precision = 1e-5 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(value, -np.logaddexp(0, np.where(watched, -logits, logits)).sum(), rtol=precision)
    for name, want in expected.items():
        bound = precision * max(1.0, np.abs(want).max())
        np.testing.assert_allclose(gradient[name], want, rtol=0, atol=bound, err_msg=name)


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_sum_of_logs_is_the_log_of_a_product(count: int, dtype: str) -> None:
    values = np.random.default_rng(0).uniform(size=(3, count)).astype(dtype)
    values[:, : count // 2] = 1.0
    precision = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(
        _sum_log1p(jnp.asarray(values)), np.log1p(values.astype(np.float64)).sum(1), rtol=precision
    )
