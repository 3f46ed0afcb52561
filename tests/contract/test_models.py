"""The contract of a model, for every model of the registry."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bayesmesh.analyses.base import BoundModel
from bayesmesh.config.declarations import list_analyses, offer_words, read_offers, read_trait
from bayesmesh.config.registry import list_components, load_component, options_class
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
    return programs_of(case).draw(jax.random.key(seed))[0]


class Programs:
    """What a model computes, compiled once for all tests."""

    def __init__(self, case) -> None:
        model, arrays = case.model, case.arrays
        prior = model.prior(case.spec)

        def draw(key: jax.Array) -> tuple[dict[str, jax.Array], jax.Array, jax.Array]:
            """Latents, their log prior, and the log likelihood of every row."""
            latents = prior.sample(seed=key)
            return latents, prior.log_prob(latents), model.log_likelihood(latents, arrays)

        self.draw = jax.jit(draw)
        self.log_likelihood = jax.jit(model.log_likelihood)
        self.value_and_gradient = jax.jit(model.log_likelihood_and_gradient)


_PROGRAMS: dict[tuple[str, str], Programs] = {}


def programs_of(case) -> Programs:
    """By model and dtype."""
    key = (case.name, case.spec.dtype)
    return _PROGRAMS[key] if key in _PROGRAMS else _PROGRAMS.setdefault(key, Programs(case))


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
    latents, log_prior, _ = programs_of(case).draw(jax.random.key(1))
    assert isinstance(latents, dict)
    assert {k: v.dtype.name for k, v in latents.items()} == dict.fromkeys(latents, dtype)
    assert all(np.isfinite(v).all() for v in latents.values())
    assert log_prior.shape == ()
    assert np.isfinite(log_prior)


def test_local_latents_span_the_rows(case, latents) -> None:
    for name, axis in case.model_class.local_latents.items():
        assert latents[name].shape[axis] == case.spec.num_rows
    assert set(case.model_class.local_latents) <= set(latents)


def test_the_prior_maps_to_unconstrained_space_and_back(case, latents) -> None:
    bijector = case.model.prior(case.spec).experimental_default_event_space_bijector()
    there = jax.jit(bijector.inverse)(latents)
    assert all(np.isfinite(v).all() for v in there.values())
    assert_near(jax.jit(bijector.forward)(there), latents, 1e-9)


def test_draws_of_the_prior_differ(case, latents) -> None:
    other = draw(case, seed=2)
    assert all((latents[k] != other[k]).all() for k in latents)


@pytest.mark.parametrize("dtype", DTYPES)
def test_log_likelihood_is_one_finite_number_a_row(case, dtype) -> None:
    case = case.with_dtype(dtype)
    _, _, value = programs_of(case).draw(jax.random.key(1))
    assert (value.shape, value.dtype) == ((case.spec.num_rows,), dtype)
    assert np.isfinite(value).all()


def test_rows_are_independent(case, latents) -> None:
    whole = programs_of(case).log_likelihood(latents, case.arrays)
    single = jax.jit(lambda index: case.model.log_likelihood(*take(case, latents, index)))
    apart = [single(jnp.asarray([i]))[0] for i in range(case.spec.num_rows)]
    np.testing.assert_allclose(whole, np.asarray(apart), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(whole.sum(), sum(apart), rtol=1e-12)


OF_PRIORS = {"sd_site"}
"""Latents on which the priors of others depend, and the likelihood by these alone."""


def test_latents_and_data_both_matter(case, latents) -> None:
    log_likelihood = programs_of(case).log_likelihood
    whole = log_likelihood(latents, case.arrays)
    turned = np.roll(np.arange(case.spec.num_rows), 1)
    assert not jnp.allclose(whole, log_likelihood(latents, take(case, latents, turned)[1]))
    for name in latents.keys() - OF_PRIORS:
        moved = {**latents, name: latents[name] + 0.5 * jax.random.normal(jax.random.key(3), latents[name].shape)}
        assert not jnp.allclose(whole, log_likelihood(moved, case.arrays)), name


def test_what_is_shown_first_exists(case, latents) -> None:
    summaries = jax.eval_shape(case.model.summaries, latents, case.arrays)
    assert {each.name for each in case.model.shown()} <= latents.keys() | summaries.keys()
    assert all(each.heading for each in case.model.shown())


_REFERENCES: dict[tuple[str, str], Any] = {}


def reference(case, latents, kept: str, is_row) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Value and gradient in float64 by autodiff of the plain likelihood, rows left out before anything is computed."""
    case, index = case.with_dtype("float64"), np.flatnonzero(is_row)
    precise = {k: v.astype(jnp.float64) for k, v in latents.items()}
    plain = jax.jit(jax.value_and_grad(lambda z: case.model.log_likelihood(*take(case, z, index)).sum()))
    return _REFERENCES.setdefault((case.name, kept), plain)(precise)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kept", "spread"), [("all", 8.0), ("some", 1.0)])
def test_value_and_gradient_are_those_of_the_plain_likelihood(case, dtype, kept, spread) -> None:
    case = case.with_dtype(dtype)
    latents = {k: spread * v for k, v in draw(case).items()}
    number = np.arange(case.spec.num_rows)
    is_row = {"all": number >= 0, "some": number % 3 > 0}[kept]
    value, gradient = programs_of(case).value_and_gradient(latents, case.arrays, jnp.asarray(is_row))
    expected, expected_gradient = reference(case, latents, kept, is_row)
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
    evaluate = programs_of(case).value_and_gradient
    value, gradient = evaluate(longer, rows, is_row)
    expected, expected_gradient = evaluate(latents, case.arrays, is_row[: case.spec.num_rows])
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    assert_near(gradient, {k: pad(v, axes[k]) if k in axes else v for k, v in expected_gradient.items()}, 1e-13)
    for name, axis in axes.items():
        assert not jnp.take(gradient[name], jnp.arange(case.spec.num_rows, case.spec.num_rows + 3), axis=axis).any()


def test_no_rows_are_no_evidence(case, latents) -> None:
    nothing = jnp.zeros(case.spec.num_rows, bool)
    value, gradient = programs_of(case).value_and_gradient(latents, case.arrays, nothing)
    assert value == 0
    assert not any(g.any() for g in gradient.values())


def test_gradients_agree_with_finite_differences(case, make_target) -> None:
    """The gradient that samplers follow is the one that is returned, not one that JAX derives."""
    target = make_target(case)
    data = {k: jnp.asarray(v) for k, v in target.lay_out(case.rows).items()}
    position = jax.device_get(jax.jit(jax.vmap(target.sample_prior))(jax.random.key(4)[None]))
    random = np.random.default_rng(4)
    direction = jax.tree.map(lambda x: random.standard_normal(x.shape), position)
    eps = 1e-4

    @jax.jit
    def evaluate(step: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The log density along the direction, and its slope there."""
        found = target.bind(data).log_density(jax.tree.map(lambda x, d: x + step * d, position, direction))
        products = jax.tree.map(lambda g, d: (g * d).sum(), found.gradient, direction)
        return (found.log_prior + found.log_likelihood)[0], sum(jax.tree.leaves(products))

    difference = (evaluate(eps)[0] - evaluate(-eps)[0]) / (2 * eps)
    np.testing.assert_allclose(evaluate(0.0)[1], difference, rtol=1e-6, atol=1e-6)


def test_draws_can_be_batched_and_compiled(case) -> None:
    several = [draw(case, seed) for seed in range(3)]
    batch = jax.tree.map(lambda *v: jnp.stack(v), *several)
    together = jax.jit(jax.vmap(lambda z: case.model.log_likelihood(z, case.arrays)))(batch)
    plain = programs_of(case).log_likelihood
    apart = jnp.stack([plain(z, case.arrays) for z in several])
    np.testing.assert_allclose(together, apart, rtol=1e-11, atol=1e-11)


def test_predictions_are_about_the_outcome(case, latents) -> None:
    if case.model_class.outcome is Model.outcome:
        with pytest.raises(NotImplementedError, match="has no outcome"):
            case.model.outcome(case.arrays)
        return
    outcome = case.model.outcome(case.arrays)

    @jax.jit
    def predict(latents: Any) -> tuple[jax.Array, jax.Array]:
        predictive = case.model.predict(latents, case.arrays)
        assert predictive.batch_shape[0] == outcome.shape[0] == case.spec.num_rows
        return predictive.sample(seed=jax.random.key(0)), predictive.log_prob(outcome)

    drawn, log_prob = predict(latents)
    assert drawn.shape == outcome.shape
    np.testing.assert_allclose(
        np.reshape(log_prob, (case.spec.num_rows, -1)).sum(1),
        programs_of(case).log_likelihood(latents, case.arrays),
        rtol=1e-10,
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
        unseen=lambda: None,
        read_rows=lambda start, stop: {k: v[start:stop] for k, v in case.rows.items()},
        held_out=lambda: case.rows,
        group_field="user" if case.spec.entry_counts else None,
    )
    made = load_component("analysis", analysis.name)(options_class("analysis", analysis.name)())
    try:
        made.check(BoundModel(case.model, case.spec, shards), draw(case))
    except ConfigError:
        return False
    return True


def test_logits_of_a_model_that_folds_users_in_are_products(case, latents) -> None:
    """New users are then sampled without the model, by its declaration alone."""
    for flag in ("folds_in", "folds_in_ratings"):
        assert read_trait("model", case.name, flag, False) is getattr(case.model, flag)
    if not case.model.folds_in:
        return
    product = latents["user_embeddings"] @ latents["film_embeddings"].T
    expected = product + latents["user_biases"][:, None] + latents["film_biases"]
    found = case.model.predict(latents, case.arrays).logits_parameter()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # The prior of every latent is normal with the stated scale, up to a constant.
    prior, scale = case.model.prior(case.spec), case.model.options.prior_scale
    for name in ("user_embeddings", "film_embeddings", "user_biases", "film_biases"):
        moved = {**latents, name: latents[name] + 1}
        change = -0.5 * ((moved[name] / scale) ** 2 - (latents[name] / scale) ** 2).sum()
        np.testing.assert_allclose(prior.log_prob(moved) - prior.log_prob(latents), change, rtol=1e-3, atol=1e-3)


def test_the_model_says_what_it_is_called(case) -> None:
    assert case.model_class.pretty_name
    assert case.model_class.__doc__
