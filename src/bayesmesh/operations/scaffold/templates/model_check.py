"""The likelihood of `new_model` against an independent formula."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from bayesmesh.data.base import DataSpec, FieldSpec
from bayesmesh.operations.scaffold.templates.model import NewModel, Options


def test_likelihood_is_that_of_scipy() -> None:
    rows = {"x": jnp.asarray(np.random.default_rng(1).standard_normal((7, 3)))}
    spec = DataSpec(7, {"x": FieldSpec((3,), "float64")}, {}, "float64")
    model = NewModel(Options(), spec)
    latents = model.prior(spec).sample(seed=jax.random.key(2))
    expected = stats.norm.logpdf(rows["x"], np.asarray(latents["mean"]), float(latents["scale"])).sum(axis=1)
    np.testing.assert_allclose(model.log_likelihood(latents, rows), expected, rtol=1e-12)
    np.testing.assert_array_equal(model.outcome(rows), rows["x"])


def test_prior_is_that_of_scipy() -> None:
    spec = DataSpec(7, {"x": FieldSpec((3,), "float64")}, {}, "float64")
    prior = NewModel(Options(prior_scale=2.0), spec).prior(spec)
    latents = prior.sample(seed=jax.random.key(2))
    expected = stats.norm.logpdf(np.asarray(latents["mean"]), 0, 2).sum()
    expected += stats.halfnorm.logpdf(float(latents["scale"]), 0, 2)
    np.testing.assert_allclose(prior.log_prob(latents), expected, rtol=1e-12)
