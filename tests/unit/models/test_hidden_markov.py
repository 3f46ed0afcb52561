"""The hidden Markov chain: published numbers to all digits, and an independent forward pass in log scale."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.data.sources.hidden_markov import Options as SourceOptions
from bayesmesh.data.sources.hidden_markov import Source
from bayesmesh.models.hidden_markov import HiddenMarkov, Options

DATASET = Source(SourceOptions()).read(None)
ROWS = {k: jnp.asarray(v) for k, v in DATASET.rows.items()}
TRUTH = {k: jnp.asarray(v) for k, v in DATASET.truth.items()}


def make(num_rows: int = 70) -> HiddenMarkov:
    return HiddenMarkov(Options(), DataSpec(num_rows, {"emissions": FieldSpec((51,), "float64")}, {}, "float64"))


@pytest.fixture(scope="module")
def at_truth():
    return jax.jit(make().log_likelihood_and_gradient)(TRUTH, ROWS, jnp.ones(70, bool))


def log_forward(latents, emissions: np.ndarray) -> np.ndarray:
    """The same in logs, with SciPy; (row,)."""
    states = np.arange(1, len(latents["initial"]) + 1)
    emission = stats.norm.logpdf(emissions[:, :, None], states * latents["signal"], latents["noise"])
    log_transition = np.log(latents["transition"])
    alpha = np.log(latents["initial"]) + emission[:, 0]
    for t in range(1, emissions.shape[1]):
        alpha = emission[:, t] + special.logsumexp(alpha[:, :, None] + log_transition, axis=1)
    return special.logsumexp(alpha, axis=1)


def test_the_published_log_likelihoods(at_truth) -> None:
    """D1 and D2 of the experiments: the first process and all seventy."""
    per_row = jax.jit(make().log_likelihood)(TRUTH, ROWS)
    assert f"{per_row[0]:.8f}" == "-3.93533794"
    assert f"{per_row.sum():.8f}" == f"{at_truth[0]:.8f}" == "-37.00348857"


def test_the_published_derivative(at_truth) -> None:
    """D3, by the gradient of the fast path and by JAX's own derivative of the plain one."""
    model = make()
    derived = jax.jit(jax.grad(lambda signal: model.log_likelihood({**TRUTH, "signal": signal}, ROWS).sum()))
    assert f"{at_truth[1]['signal']:.8f}" == f"{derived(TRUTH['signal']):.8f}" == "-297.86490611"


def test_a_forward_pass_in_logs_agrees() -> None:
    log_likelihood = jax.jit(make().log_likelihood)
    for seed in range(5):
        generator = np.random.default_rng(seed)
        latents = {
            "signal": generator.normal(),
            "noise": abs(generator.normal()),
            "initial": generator.dirichlet(np.ones(3)),
            "transition": generator.dirichlet(np.ones(3), 3),
        }
        expected = log_forward(latents, np.asarray(ROWS["emissions"]))
        found = log_likelihood({k: jnp.asarray(v) for k, v in latents.items()}, ROWS)
        np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_an_emission_far_from_all_states_is_in_range() -> None:
    """In float32, hundreds of deviations from every mean: finite, as in float64."""
    far = {"emissions": ROWS["emissions"][:2].at[:, 7].set(60.0)}
    evaluate = jax.jit(make(2).log_likelihood_and_gradient)
    precise, by = evaluate(TRUTH, far, jnp.ones(2, bool))
    single = {k: v.astype(jnp.float32) for k, v in TRUTH.items()}
    value, by_single = evaluate(single, far, jnp.ones(2, bool))
    np.testing.assert_allclose(value, precise, rtol=1e-5)
    for name in by:
        np.testing.assert_allclose(by_single[name], by[name], rtol=1e-3, atol=1e-4 * np.abs(by[name]).max())
