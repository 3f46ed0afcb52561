"""The contract of a model, for every model of the registry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from bayesmesh.analyses.base import BoundModel
from bayesmesh.config.declarations import list_analyses, offer_words, read_offers
from bayesmesh.config.registry import list_components, load_component, read_options
from bayesmesh.errors import ConfigError
from bayesmesh.models.base import Model

DTYPES = ("float32", "float64")
PRECISION = {"float32": 1e-5, "float64": 1e-12}


@pytest.fixture(scope="module", params=list_components("model"))
def case(request, make_case):
    return make_case(request.param)


@pytest.fixture(scope="module")
def latents(case) -> dict[str, jax.Array]:
    return draw(case)


def draw(case, seed: int = 1) -> dict[str, jax.Array]:
    return _draw(case)(jax.random.key(seed))


_SAMPLERS: dict[tuple[str, str], Any] = {}


def _draw(case) -> Any:
    """Compiled once a model and dtype."""
    key = (case.name, case.spec.dtype)
    if key not in _SAMPLERS:
        _SAMPLERS[key] = jax.jit(lambda key: case.model.prior(case.spec).sample(seed=key))
    return _SAMPLERS[key]


def take(case, latents, index) -> tuple[dict[str, Any], dict[str, Any]]:
    """Latents and rows of the rows `index`, aligned."""
    axes = case.model_class.local_latents
    chosen = {k: jnp.take(v, index, axis=axes[k]) if k in axes else v for k, v in latents.items()}
    return chosen, {k: v[index] for k, v in case.arrays.items()}


def assert_near(actual, expected, precision: float) -> None:
    """Compare relative to the largest entry: small entries are differences of large ones."""
    for name in expected:
        want = np.asarray(expected[name], np.float64)
        np.testing.assert_allclose(
            actual[name], want, rtol=0, atol=precision * max(1.0, np.abs(want).max()), err_msg=name
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_prior_draws_named_latents_of_the_dtype(case, dtype) -> None:
    case = case.with_dtype(dtype)
    prior, latents = case.model.prior(case.spec), draw(case)
    assert isinstance(latents, dict)
    assert {k: v.dtype.name for k, v in latents.items()} == dict.fromkeys(latents, dtype)
    assert all(jnp.isfinite(v).all() for v in latents.values())
    assert prior.log_prob(latents).shape == ()
    assert jnp.isfinite(prior.log_prob(latents))


def test_local_latents_span_the_rows(case, latents) -> None:
    for name, axis in case.model_class.local_latents.items():
        assert latents[name].shape[axis] == case.spec.num_rows
    assert set(case.model_class.local_latents) <= set(latents)


def test_the_prior_maps_to_unconstrained_space_and_back(case, latents) -> None:
    bijector = case.model.prior(case.spec).experimental_default_event_space_bijector()
    there = bijector.inverse(latents)
    assert all(jnp.isfinite(v).all() for v in there.values())
    assert_near(bijector.forward(there), latents, 1e-9)


def test_draws_of_the_prior_differ(case, latents) -> None:
    other = draw(case, seed=2)
    assert all((latents[k] != other[k]).all() for k in latents)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_likelihood_is_one_finite_number_a_row(case, dtype) -> None:
    case = case.with_dtype(dtype)
    value = case.model.log_likelihood(draw(case), case.arrays)
    assert (value.shape, value.dtype) == ((case.spec.num_rows,), dtype)
    assert jnp.isfinite(value).all()


def test_rows_are_independent(case, latents) -> None:
    whole = case.model.log_likelihood(latents, case.arrays)
    single = jax.jit(lambda index: case.model.log_likelihood(*take(case, latents, index)))
    apart = [single(jnp.asarray([i]))[0] for i in range(case.spec.num_rows)]
    np.testing.assert_allclose(whole, np.asarray(apart), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(whole.sum(), sum(apart), rtol=1e-12)


def test_latents_and_data_both_matter(case, latents) -> None:
    log_likelihood = jax.jit(case.model.log_likelihood)
    whole = log_likelihood(latents, case.arrays)
    turned = np.roll(np.arange(case.spec.num_rows), 1)
    assert not jnp.allclose(whole, log_likelihood(latents, take(case, latents, turned)[1]))
    for name in latents:
        moved = {**latents, name: latents[name] + 0.5 * jax.random.normal(jax.random.key(3), latents[name].shape)}
        assert not jnp.allclose(whole, log_likelihood(moved, case.arrays)), name


def reference(case, latents, is_row) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Value and gradient in float64 by autodiff of the plain likelihood, rows left out before anything is computed."""
    case, index = case.with_dtype("float64"), np.flatnonzero(is_row)
    precise = {k: v.astype(jnp.float64) for k, v in latents.items()}
    return jax.jit(jax.value_and_grad(lambda z: case.model.log_likelihood(*take(case, z, index)).sum()))(precise)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kept", "spread"), [("all", 8.0), ("some", 1.0)])
def test_value_and_gradient_are_those_of_the_plain_likelihood(case, dtype, kept, spread) -> None:
    case = case.with_dtype(dtype)
    latents = {k: spread * v for k, v in draw(case).items()}
    number = np.arange(case.spec.num_rows)
    is_row = {"all": number >= 0, "some": number % 3 > 0}[kept]
    value, gradient = jax.jit(case.model.log_likelihood_and_gradient)(latents, case.arrays, jnp.asarray(is_row))
    expected, expected_gradient = reference(case, latents, is_row)
    assert (value.shape, value.dtype) == ((), jnp.float64)
    assert {k: (v.shape, v.dtype) for k, v in gradient.items()} == {k: (v.shape, v.dtype) for k, v in latents.items()}
    assert_near({"value": value}, {"value": expected}, PRECISION[dtype])
    assert_near(gradient, expected_gradient, PRECISION[dtype])


def test_padding_counts_for_nothing(case, latents) -> None:
    """Behind the rows lie zeros, in data and local latents alike."""
    axes = case.model_class.local_latents

    def pad(value, axis):
        return jnp.pad(value, [(0, 3 if i == axis else 0) for i in range(value.ndim)])

    longer = {k: pad(v, axes[k]) if k in axes else v for k, v in latents.items()}
    rows = {k: pad(v, 0) for k, v in case.arrays.items()}
    is_row = jnp.arange(case.spec.num_rows + 3) < case.spec.num_rows
    evaluate = jax.jit(case.model.log_likelihood_and_gradient)
    value, gradient = evaluate(longer, rows, is_row)
    expected, expected_gradient = evaluate(latents, case.arrays, is_row[: case.spec.num_rows])
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    assert_near(gradient, {k: pad(v, axes[k]) if k in axes else v for k, v in expected_gradient.items()}, 1e-13)
    for name, axis in axes.items():
        assert not jnp.take(gradient[name], jnp.arange(case.spec.num_rows, case.spec.num_rows + 3), axis=axis).any()


def test_no_rows_are_no_evidence(case, latents) -> None:
    nothing = jnp.zeros(case.spec.num_rows, bool)
    value, gradient = jax.jit(case.model.log_likelihood_and_gradient)(latents, case.arrays, nothing)
    assert value == 0
    assert not any(g.any() for g in gradient.values())


def test_gradients_agree_with_finite_differences(case, make_target) -> None:
    target = make_target(case)
    data = {k: jnp.asarray(v) for k, v in target.lay_out(case.rows).items()}
    position = target.sample_prior(jax.random.key(4))

    def evaluate(position):
        found = target.bind(data).log_density(jax.tree.map(lambda x: x[None], position))
        return found.log_prior[0] + found.log_likelihood[0], jax.tree.map(lambda x: x[0], found.gradient)

    @jax.custom_vjp
    def log_density(position):
        return evaluate(position)[0]

    # The gradient that samplers follow is the one that is returned, not one that JAX derives.
    log_density.defvjp(evaluate, lambda gradient, weight: (jax.tree.map(lambda g: weight * g, gradient),))
    check_grads(jax.jit(log_density), (position,), order=1, modes=["rev"], rtol=1e-6, atol=1e-6, eps=1e-4)


def test_draws_can_be_batched_and_compiled(case) -> None:
    several = [draw(case, seed) for seed in range(3)]
    batch = jax.tree.map(lambda *v: jnp.stack(v), *several)
    together = jax.jit(jax.vmap(lambda z: case.model.log_likelihood(z, case.arrays)))(batch)
    plain = jax.jit(case.model.log_likelihood)
    apart = jnp.stack([plain(z, case.arrays) for z in several])
    np.testing.assert_allclose(together, apart, rtol=1e-11, atol=1e-11)


def test_predictions_are_about_the_outcome(case, latents) -> None:
    if case.model_class.outcome is Model.outcome:
        with pytest.raises(NotImplementedError, match="has no outcome"):
            case.model.outcome(case.arrays)
        return
    outcome = case.model.outcome(case.arrays)
    predictive = case.model.predict(latents, case.arrays)
    assert predictive.batch_shape[0] == outcome.shape[0] == case.spec.num_rows
    assert predictive.sample(seed=jax.random.key(0)).shape == outcome.shape
    log_prob = predictive.log_prob(outcome)
    np.testing.assert_allclose(
        log_prob.reshape(case.spec.num_rows, -1).sum(1), case.model.log_likelihood(latents, case.arrays), rtol=1e-10
    )


def test_summaries_are_finite_and_few(case, latents) -> None:
    index = np.arange(5)
    chosen, rows = take(case, latents, index)
    summaries = jax.jit(case.model.summaries)(chosen, rows)
    assert summaries
    assert all(jnp.isfinite(v).all() for v in summaries.values())
    # Added for every model when the posterior is assembled; a name of the model's own would be overwritten.
    assert not {"log_density", "log_likelihood"} & set(summaries)
    again = jax.eval_shape(case.model.summaries, *take(case, draw(case, 9), index))
    assert {k: v.shape for k, v in again.items()} == {k: v.shape for k, v in summaries.items()}


def test_the_model_offers_what_it_declares(case) -> None:
    declared = read_offers("model", case.name)
    found = {
        word for word in offer_words() if all(serves(case, a) for a in list_analyses() if word in a.needs_of_model)
    }
    assert declared is None or found == set(declared)


def serves(case, analysis) -> bool:
    """Whether the model passes the check that an analysis makes before anything is sampled."""
    shards = SimpleNamespace(
        kind="interactions" if "watched" in case.rows else "rows",
        fields=case.spec.fields,
        num_rows=case.spec.num_rows,
        test_rows=lambda: case.rows,
    )
    made = load_component("analysis", analysis.name)(read_options(analysis.path)())
    try:
        made.check(BoundModel(case.model, case.spec, shards), draw(case))
    except ConfigError:
        return False
    return True


def test_the_model_says_what_it_is_called(case) -> None:
    assert case.model_class.pretty_name
    assert case.model_class.__doc__
