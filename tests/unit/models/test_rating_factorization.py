"""Ratings of observed cells against NumPy, on any layout of users over devices and tiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.fold_in.ratings import expected_ratings, scales_of
from bayesmesh.config.declarations import read_trait
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.models._outcomes import log_mass
from bayesmesh.models.rating_factorization import Options, RatingFactorization
from bayesmesh.sampling.density.log_density import Target
from bayesmesh.sampling.density.rows import lay_out_rows

USERS, FILMS, WIDTH, ROWS = 7, 5, 3, 60
NAMES: dict[str, Any] = {"user": "reader", "film": "book", "rating": "stars", "repeated": "keep"}


@functools.cache
def table() -> tuple[DataSpec, dict[str, np.ndarray]]:
    """Ratings in random order: user 3 and film 4 have none, user 5 has most."""
    random = np.random.default_rng(1)
    rows = {
        "reader": random.choice(USERS, ROWS, p=[0.1, 0.1, 0.1, 0, 0.1, 0.5, 0.1]).astype(np.int32),
        "book": random.integers(0, FILMS - 1, ROWS).astype(np.int32),
        "stars": random.integers(1, 6, ROWS).astype(np.uint8),
    }
    fields = {k: FieldSpec((), v.dtype.name) for k, v in rows.items()}
    variables = {
        "reader": Variable("category", levels=tuple(f"reader {i}" for i in range(USERS))),
        "book": Variable("category", levels=tuple("abcde")),
        "stars": Variable("number"),
    }
    return DataSpec(ROWS, fields, {}, "float64", variables=variables), rows


def prepared(
    options: Options, spec: DataSpec, rows: Mapping[str, np.ndarray]
) -> tuple[DataSpec, dict[str, np.ndarray]]:
    return prepare_rows(functools.partial(RatingFactorization.prepare, options), spec, rows)


def log_density(z: Mapping[str, Any], options: Options) -> Any:
    """Log prior and log likelihood as they would be written down, over the rows as they come."""
    _, rows = table()
    user, film, y = rows["reader"], rows["book"], rows["stars"].astype(float)
    is_ordinal = options.likelihood == "ordinal"
    sd = np.pi / np.sqrt(3) if is_ordinal else y.std()
    embedding = np.sqrt(options.factor_scale * sd / np.sqrt(WIDTH))

    def normal(x: Any, centre: Any, scale: Any) -> Any:
        return (-0.5 * ((x - centre) / scale) ** 2 - jnp.log(scale) - 0.5 * np.log(2 * np.pi)).sum()

    predictor = z["user_biases"][user] + z["film_biases"][film]
    for k in range(WIDTH):
        predictor = predictor + z["user_embeddings"][user, k] * z["film_embeddings"][film, k]
    prior = 0.0
    for side in ("user", "film"):
        prior += normal(z[f"{side}_biases"], 0, options.bias_scale * sd) + normal(z[f"{side}_embeddings"], 0, embedding)
    if is_ordinal:
        # Dirichlet(1) over five levels has the density 4!.
        return prior + np.log(24), jnp.log(masses(z["baseline"], predictor)[np.arange(ROWS), rows["stars"] - 1]).sum()
    prior += normal(z["mean"], y.mean(), sd) + np.log(2) + normal(z["sigma"], 0, options.noise_scale * sd)
    return prior, normal(y, z["mean"] + predictor, z["sigma"])


def masses(baseline: Any, predictor: Any) -> Any:
    """Probabilities of the five levels of each row: differences of logistic functions."""
    total = jnp.cumsum(baseline)[:4]
    at_most = 1 / (1 + (1 - total) / total * jnp.exp(predictor)[:, None])
    edges = jnp.concatenate([jnp.zeros((ROWS, 1)), at_most, jnp.ones((ROWS, 1))], axis=1)
    return jnp.diff(edges, axis=1)


@pytest.mark.parametrize(
    ("likelihood", "num_devices", "row_tile"), [("gaussian", 1, 9), ("gaussian", 8, ROWS), ("ordinal", 3, 9)]
)
def test_density_and_gradient_are_those_of_the_formula(likelihood: Any, num_devices: int, row_tile: int) -> None:
    options = Options(**NAMES, likelihood=likelihood, width=WIDTH, bias_scale=0.6, factor_scale=0.7, noise_scale=0.8)
    spec, made = prepared(options, *table())
    assert (spec.num_entries, sum(spec.entry_counts), spec.entry_counts[3]) == (USERS, ROWS, 0)
    layout = lay_out_rows(ROWS, num_devices, row_tile, spec.entry_counts)
    target = Target(RatingFactorization(options, spec), spec, layout)
    position = jax.jit(jax.vmap(target.sample_prior))(jax.random.split(jax.random.key(2), 2))
    found = jax.jit(target.bind(target.lay_out(made)).log_density)(position)

    def written_out(unconstrained: Any) -> Any:
        z = dict(target.bijector.forward(unconstrained))
        prior, likelihood = log_density(z, options)
        prior += target.bijector.forward_log_det_jacobian(unconstrained)
        return prior + likelihood, (prior, likelihood)

    unpack = jax.vmap(lambda q: target.position.unpack(q, jnp.dtype("float64")))
    expected = jax.jit(jax.vmap(jax.value_and_grad(written_out, has_aux=True)))
    (_, (log_prior, log_likelihood)), gradient = expected(unpack(position))
    np.testing.assert_allclose(found.log_prior, log_prior, rtol=1e-11)
    np.testing.assert_allclose(found.log_likelihood, log_likelihood, rtol=1e-11)
    by_latent = unpack(found.gradient)
    for name, want in gradient.items():
        np.testing.assert_allclose(by_latent[name], want, rtol=1e-9, atol=1e-9, err_msg=name)


def test_predictions_are_normal_about_the_expected_rating() -> None:
    options = Options(**NAMES, width=WIDTH)
    spec, made = prepared(options, *table())
    model = RatingFactorization(options, spec)
    z = model.prior(spec).sample(seed=jax.random.key(4))
    user = spec.entries_of(np.arange(ROWS))
    np.testing.assert_array_equal(user, np.sort(table()[1]["reader"]))
    aligned = {**z, **{k: z[k][user] for k in model.local_latents}}
    rows = {k: jnp.asarray(v) for k, v in made.items()}
    expected = model.summaries(aligned, rows)["expected"]
    predicted = model.predict(aligned, rows)
    np.testing.assert_allclose(predicted.mean(), expected)
    want = stats.norm(np.asarray(expected), float(z["sigma"])).logpdf(np.asarray(model.outcome(rows), float))
    np.testing.assert_allclose(model.log_likelihood(aligned, rows), want, rtol=1e-10)


def test_ordered_ratings_are_predicted_in_their_unit() -> None:
    options = Options(**NAMES, width=WIDTH, likelihood="ordinal")
    spec, made = prepared(options, *table())
    assert (made["rating"].dtype, spec.arrays["levels"].tolist()) == (np.uint8, [1, 2, 3, 4, 5])
    model = RatingFactorization(options, spec)
    z = model.prior(spec).sample(seed=jax.random.key(4))
    user = spec.entries_of(np.arange(ROWS))
    aligned = {**z, **{k: z[k][user] for k in model.local_latents}}
    rows = {k: jnp.asarray(v) for k, v in made.items()}
    observed, predicted = model.outcome(rows), model.predict(aligned, rows)
    np.testing.assert_array_equal(np.sort(observed), np.sort(table()[1]["stars"]))
    products = (aligned["user_embeddings"] * z["film_embeddings"][made["film"]]).sum(axis=1)
    expected = masses(z["baseline"], aligned["user_biases"] + z["film_biases"][made["film"]] + products)
    level = np.asarray(observed, int) - 1
    np.testing.assert_allclose(predicted.mean(), expected @ np.arange(1.0, 6.0))
    np.testing.assert_allclose(model.summaries(aligned, rows)["expected"], predicted.mean())
    np.testing.assert_allclose(predicted.cdf(observed), np.cumsum(expected, axis=1)[np.arange(ROWS), level])
    np.testing.assert_allclose(
        predicted.cdf_below(observed), predicted.cdf(observed) - expected[np.arange(ROWS), level], atol=1e-12
    )
    np.testing.assert_allclose(predicted.log_prob(observed), model.log_likelihood(aligned, rows))
    drawn = jax.jit(jax.vmap(lambda key: predicted.sample(seed=key)))(jax.random.split(jax.random.key(0), 4000))
    shares = np.stack([(np.asarray(drawn) == value).mean(axis=0) for value in range(1, 6)], axis=1)
    np.testing.assert_allclose(shares, expected, atol=0.05)


def test_logits_far_out_have_finite_gradients() -> None:
    options = Options(**NAMES, width=WIDTH, likelihood="ordinal")
    spec, made = prepared(options, *table())
    model = RatingFactorization(options, spec.with_dtype("float32"))
    z = {k: 30 * v.astype(jnp.float32) for k, v in model.prior(spec).sample(seed=jax.random.key(5)).items()}
    z["baseline"] = jnp.asarray([1e-6, 0.5, 1e-6, 0.4, 0.1], jnp.float32)
    user = spec.entries_of(np.arange(ROWS))
    aligned = {**z, **{k: z[k][user] for k in model.local_latents}}
    rows = {k: jnp.asarray(v) for k, v in made.items()}
    value, gradient = jax.jit(model.log_likelihood_and_gradient)(aligned, rows, jnp.ones(ROWS, bool))
    assert np.isfinite(value)
    assert all(np.isfinite(each).all() for each in gradient.values())


def test_a_rating_that_the_model_does_not_know_is_a_number_only_where_levels_name_it() -> None:
    """A placeholder of rows to predict is any number; a held-out rating that no training row has may be listed."""
    spec, rows = table()
    for levels, place, outcome, expected in (((), 255, np.nan, -np.inf), ((1, 2, 3, 4, 5, 9), 5, 9.0, None)):
        options = Options(**NAMES, width=WIDTH, likelihood="ordinal", levels=levels)
        own, made = prepared(options, spec, rows)
        preparation = RatingFactorization.prepare(options, spec, lambda: iter([rows]))
        assert preparation is not None
        held_out = preparation.of_rows({**rows, "stars": np.full(ROWS, 9, np.uint8)}, ROWS)
        assert set(held_out["rating"].tolist()) == {place}
        model = RatingFactorization(options, own)
        z = model.prior(own).sample(seed=jax.random.key(4))
        aligned = {**z, **{k: z[k][own.entries_of(np.arange(ROWS))] for k in model.local_latents}}
        given = {k: jnp.asarray(v) for k, v in held_out.items()}
        np.testing.assert_array_equal(model.outcome(given), np.full(ROWS, outcome))
        found = np.asarray(model.log_likelihood(aligned, given))
        assert (found == expected).all() if expected is not None else np.isfinite(found).all()
        assert made["rating"].max() == 4


def test_a_rare_level_has_the_gradient_of_its_probability_in_float32() -> None:
    """Cutpoints of a level of probability 1e-7 have no difference in float32."""
    rare = np.array([0.5, 1e-7, 0.3, 0.2 - 1e-7])
    predictor, level = jnp.array([0.7]), jnp.array([1])

    def log_of(baseline: Any) -> Any:
        return log_mass(predictor.astype(baseline.dtype), baseline, level)[0]

    value, gradient = jax.value_and_grad(log_of)(jnp.asarray(rare, jnp.float32))
    wanted, slope = jax.value_and_grad(log_of)(jnp.asarray(rare, jnp.float64))
    odds = np.cumsum(rare)[:2] / (1 - np.cumsum(rare)[:2]) * np.exp(-0.7)
    np.testing.assert_allclose(wanted, np.log(np.diff(odds / (1 + odds))[0]), rtol=1e-8)
    np.testing.assert_allclose(value, wanted, rtol=1e-6)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4)


@pytest.mark.parametrize("likelihood", ["gaussian", "ordinal"])
def test_what_new_users_are_sampled_with_is_what_the_model_says(likelihood: Any) -> None:
    """`folds_in_ratings`: NumPy alone has the prior of a user, and the ratings to expect."""
    options = Options(**NAMES, width=WIDTH, likelihood=likelihood, bias_scale=0.6, factor_scale=0.7)
    spec, made = prepared(options, *table())
    model = RatingFactorization(options, spec)
    assert read_trait("model", "rating_factorization", "folds_in_ratings", False) is model.folds_in_ratings is True
    scales = scales_of(options, spec.constants["rating_sd"], spec.arrays.get("levels", np.zeros(0)))
    prior = model.prior(spec)
    z = prior.sample(seed=jax.random.key(4))
    for name, scale in (("user_embeddings", scales.embedding), ("user_biases", scales.bias)):
        change = -0.5 * (((z[name] + 1) / scale) ** 2 - (z[name] / scale) ** 2).sum()
        np.testing.assert_allclose(prior.log_prob({**z, name: z[name] + 1}) - prior.log_prob(z), change, rtol=1e-9)
    user, rows = spec.entries_of(np.arange(ROWS)), {k: jnp.asarray(v) for k, v in made.items()}
    aligned = {**z, **{k: z[k][user] for k in model.local_latents}}
    products = (aligned["user_embeddings"] * z["film_embeddings"][made["film"]]).sum(axis=1)
    predictor = np.asarray(products + aligned["user_biases"] + z["film_biases"][made["film"]])
    shared = {name: np.asarray(z[name]) for name in scales.shared}
    found = expected_ratings(predictor, shared, scales)
    np.testing.assert_allclose(found, model.predict(aligned, rows).mean(), rtol=1e-6)
