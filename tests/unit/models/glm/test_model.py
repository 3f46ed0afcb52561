"""Linear models against formulas written with SciPy: every family, priors, and effects of groups."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.model import Glm
from cases import trees

NUM_ROWS = 60


def make(
    formula: str, family: str = "normal", num_rows: int = NUM_ROWS, **options: Any
) -> tuple[Glm, dict[str, Any], dict[str, np.ndarray]]:
    """Return a model of trees, its rows, and those of the table."""
    spec, table = trees(num_rows)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    return Glm(own, prepared), {k: jnp.asarray(v) for k, v in rows.items()}, table


def draw(model: Glm, seed: int = 1) -> dict[str, Any]:
    return model.prior(model.spec).sample(seed=jax.random.key(seed))


def logpdf(family: str, table: Any, eta: Any, z: Any) -> np.ndarray:
    """Return the log density of each row, by SciPy."""
    if family == "normal":
        return stats.norm(eta, z["sigma"]).logpdf(table["growth"])
    if family == "student_t":
        return stats.t(z["nu"], eta, z["sigma"]).logpdf(table["growth"])
    if family == "bernoulli":
        return stats.bernoulli(special.expit(eta)).logpmf(table["alive"])
    if family == "binomial":
        return stats.binom(table["plots"], special.expit(eta)).logpmf(table["seeds"])
    if family == "poisson":
        return stats.poisson(np.exp(eta)).logpmf(table["leaves"])
    if family == "negative_binomial":
        return stats.nbinom(z["shape"], z["shape"] / (z["shape"] + np.exp(eta))).logpmf(table["leaves"])
    if family == "gamma":
        return stats.gamma(z["shape"], scale=np.exp(eta) / z["shape"]).logpdf(table["mass"])
    if family == "categorical":
        logits = np.concatenate([np.zeros((len(eta), 1)), eta], axis=1)
        return special.log_softmax(logits, axis=1)[np.arange(len(eta)), table["stage"]]
    cut = special.logit(np.cumsum(z["baseline"])[:-1])
    below = special.expit(np.concatenate([[-np.inf], cut, [np.inf]])[None] - eta[:, None])
    return np.log(np.diff(below, axis=1)[np.arange(len(eta)), table["stage"]])


OUTCOMES = {
    "normal": "growth", "student_t": "growth", "bernoulli": "alive", "binomial": "seeds", "poisson": "leaves",
    "negative_binomial": "leaves", "gamma": "mass", "categorical": "stage", "ordinal": "stage",
}  # fmt: skip


@pytest.mark.parametrize("family", OUTCOMES)
def test_every_family_is_scipy_s(family: str) -> None:
    options = {"trials": "plots"} if family == "binomial" else {}
    model, rows, table = make(f"{OUTCOMES[family]} ~ age + species", family, **options)
    design = np.stack([table["age"], table["species"] == 1, table["species"] == 2], axis=1).astype(float)
    for seed in range(2):
        latents = draw(model, seed)
        latents["coefficients"] = 0.2 * latents["coefficients"]
        z = {k: np.asarray(v) for k, v in latents.items()}
        eta = (design - design.mean(0)) @ z["coefficients"] + z.get("intercept", 0)
        expected = logpdf(family, table, eta, z)
        # The formula of the ordinal family takes differences of probabilities, which cancel in the tails.
        known = np.isfinite(expected) & (expected > (-15 if family == "ordinal" else -np.inf))
        assert known.mean() > 0.5
        found = model.log_likelihood(latents, rows)
        np.testing.assert_allclose(found[known], expected[known], rtol=1e-7, atol=1e-9)
        predictive = model.predict(latents, rows)
        log_prob = predictive.log_prob(model.outcome(rows))
        np.testing.assert_allclose(log_prob[known], expected[known], rtol=1e-7, atol=1e-9)
        assert predictive.sample(seed=jax.random.key(0)).shape == (NUM_ROWS,)
        summaries = model.summaries(latents, rows)
        if "intercept" in z:
            np.testing.assert_allclose(
                summaries["intercept_at_zero"], z["intercept"] - design.mean(0) @ z["coefficients"], rtol=1e-9
            )
        np.testing.assert_allclose(summaries["b_species"], z["coefficients"][1:], rtol=1e-12)


def test_terms_that_differ_in_their_operator_alone_are_two_summaries() -> None:
    model, rows, _ = make("growth ~ log(age * mass) + log(age / mass) + I(age + mass) + I(age - mass)", "normal")
    latents = draw(model)
    found = {k: v for k, v in model.summaries(latents, rows).items() if k.startswith("b_")}
    assert list(found) == ["b_log(age times mass)", "b_log(age per mass)", "b_I(age plus mass)", "b_I(age - mass)"]
    np.testing.assert_allclose(list(found.values()), latents["coefficients"])


SLOPES = np.array([0.2, -0.4, 0.5])

MANY_ROWS = 3000


def simulate(family: str, eta: np.ndarray, plots: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """Return outcomes by NumPy and the parameters beside the predictor."""
    random, mean = np.random.default_rng(8), np.exp(eta)
    match family:
        case "normal":
            return random.normal(eta, 0.5), {"sigma": 0.5}
        case "student_t":
            return eta + 0.5 * random.standard_t(5, len(eta)), {"sigma": 0.5, "nu": 5.0}
        case "bernoulli":
            return random.binomial(1, special.expit(eta)), {}
        case "binomial":
            return random.binomial(plots, special.expit(eta)), {}
        case "poisson":
            return random.poisson(mean), {}
        case "negative_binomial":
            return random.negative_binomial(2, 2 / (2 + mean)), {"shape": 2.0}
        case "gamma":
            return random.gamma(3, mean / 3), {"shape": 3.0}
        case "categorical":
            # The largest of utilities with Gumbel noise.
            utilities = np.stack([np.zeros_like(eta), eta, -eta, 0.5 * eta], axis=1)
            return np.argmax(utilities + random.gumbel(size=utilities.shape), axis=1).astype(np.int32), {}
    # A logistic variable between cutpoints.
    return np.searchsorted([-1.0, 0.5, 1.5], eta + random.logistic(size=len(eta))).astype(np.int32), {}


@pytest.mark.parametrize("family", OUTCOMES)
def test_known_coefficients_are_recovered(family: str) -> None:
    spec, table = trees(MANY_ROWS)
    design = np.stack([table["age"], table["species"] == 1, table["species"] == 2], axis=1).astype(float)
    centre, level = design.mean(0) @ SLOPES, 0.0 if family == "ordinal" else -0.6
    outcome, parameters = simulate(family, level + design @ SLOPES, table["plots"])
    options = {"trials": "plots"} if family == "binomial" else {}
    own = options_class("model", "glm")(formula=f"{OUTCOMES[family]} ~ age + species", family=family, **options)
    table = {**table, OUTCOMES[family]: outcome}
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    model, factors = Glm(own, prepared), np.array([1.0, -1.0, 0.5])
    truth: dict[str, Any] = {"coefficients": jnp.asarray(SLOPES), "intercept": level + centre, **parameters}
    if family == "categorical":
        truth = {k: np.multiply.outer(np.asarray(v), factors) for k, v in truth.items()}
    if family == "ordinal":
        below = special.expit(np.array([-1.0, 0.5, 1.5, np.inf]) - centre)
        truth = {
            "coefficients": truth["coefficients"],
            "baseline": np.log(np.diff(below, prepend=0)[:3] / (1 - below[2])),
        }
    flat, unflatten = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, truth))
    on_device = {k: jnp.asarray(v) for k, v in rows.items()}

    def log_likelihood(flat: jax.Array) -> jax.Array:
        latents = unflatten(flat)
        if "baseline" in latents:
            latents["baseline"] = jax.nn.softmax(jnp.append(latents["baseline"], 0.0))
        return model.log_likelihood(latents, on_device).sum()

    score, information = jax.grad(log_likelihood), jax.jit(jax.hessian(log_likelihood))
    covariance = np.linalg.inv(-np.asarray(information(flat)))
    # The estimate is a Newton step away from the truth, a few standard errors.
    errors = covariance @ np.asarray(score(flat)) / np.sqrt(np.diag(covariance))
    assert np.abs(errors).max() < 4
    assert np.sqrt(np.diag(covariance)).max() < 0.5


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
@pytest.mark.parametrize("family", ["ordinal", "sequential"])
def test_cutpoints_are_those_of_columns_that_are_zero(family: str, link: str) -> None:
    model, rows, table = make("stage ~ age + mass", family, link=link)
    latents = draw(model)
    found = model.summaries(latents, rows)
    line = float(found["b_age"]) * table["age"] + float(found["b_mass"]) * table["mass"]
    distribution = {"logit": special.expit, "probit": special.ndtr, "cloglog": lambda x: -np.expm1(-np.exp(x))}[link]
    shares = np.exp(np.stack([model.predict(latents, rows).log_prob(np.full(NUM_ROWS, k)) for k in range(4)], axis=1))
    reached = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    expected = shares[:, :3] / reached[:, :3] if family == "sequential" else np.cumsum(shares, axis=1)[:, :3]
    np.testing.assert_allclose(distribution(np.asarray(found["cutpoints"]) - line[:, None]), expected, rtol=1e-6)
    (axis,) = model.axes()["cutpoints"]
    assert axis is not None
    assert len(axis.labels) == 3
    assert "cutpoints" in [each.name for each in model.shown()]


def test_offset_and_weights() -> None:
    plain, rows, table = make("leaves ~ age", "poisson")
    other, more, _ = make("leaves ~ age", "poisson", offset="mass", weights="plots")
    latents = draw(plain)
    eta = (table["age"] - table["age"].mean()) * float(latents["coefficients"][0]) + float(latents["intercept"])
    expected = table["plots"] * stats.poisson(np.exp(eta + table["mass"])).logpmf(table["leaves"])
    np.testing.assert_allclose(other.log_likelihood(latents, more), expected, rtol=1e-9)
    assert not np.allclose(plain.log_likelihood(latents, rows), expected)


def test_default_priors_are_scaled_to_the_data() -> None:
    model, _, table = make("growth ~ age + species + (1 + age | site)")
    sd = table["growth"].std()
    latents = draw(model)
    z = {k: np.asarray(v) for k, v in latents.items()}
    columns = np.stack([table["age"], table["species"] == 1, table["species"] == 2])
    expected = stats.norm(table["growth"].mean(), 2.5 * sd).logpdf(z["intercept"])
    expected += stats.norm(0, 2.5 * sd / columns.std(1)).logpdf(z["coefficients"]).sum()
    expected += stats.expon(0, sd).logpdf(z["sigma"])
    size = np.sqrt(np.mean(np.square(table["age"])))
    expected += stats.expon(0, sd / np.array([1, size])).logpdf(z["sd_site"]).sum()
    scale = np.diag(z["sd_site"]) @ z["correlation_site"]
    expected += stats.multivariate_normal(np.zeros(2), scale @ scale.T).logpdf(z["effects_site"]).sum()
    # Of two effects with lkj(1) the correlation is uniform, and the density by the Cholesky factor is 1/2.
    expected += np.log(0.5)
    np.testing.assert_allclose(model.prior(model.spec).log_prob(latents), expected, rtol=1e-9)


def test_priors_by_name() -> None:
    given = {
        "intercept": "student_t(3, 1, 2)", "coefficients": "normal(0, 2)", "species": "laplace(0.5, 1)", "sigma": "half_normal(3)",
        "sd": "half_cauchy(2)", "sd_site": "exponential(4)",
    }  # fmt: skip
    model, rows, _ = make("growth ~ age + species + mass + (1 | site)", priors=given)
    latents = draw(model)
    z = {k: np.asarray(v) for k, v in latents.items()}
    assert (z["coefficients"].shape, z["coefficients_laplace"].shape) == ((2,), (2,))
    expected = stats.t(3, 1, 2).logpdf(z["intercept"]) + stats.norm(0, 2).logpdf(z["coefficients"]).sum()
    expected += stats.laplace(0.5, 1).logpdf(z["coefficients_laplace"]).sum() + stats.halfnorm(0, 3).logpdf(z["sigma"])
    expected += (
        stats.expon(0, 1 / 4).logpdf(z["sd_site"]).sum() + stats.norm(0, z["sd_site"]).logpdf(z["effects_site"]).sum()
    )
    np.testing.assert_allclose(model.prior(model.spec).log_prob(latents), expected, rtol=1e-9)
    summaries = model.summaries(latents, rows)
    np.testing.assert_allclose(summaries["b_mass"], z["coefficients"][1:])
    np.testing.assert_allclose(summaries["b_species"], z["coefficients_laplace"])


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("bar", ["|", "||"])
def test_effects_of_groups(bar: str, local: bool) -> None:
    model, rows, table = make(f"growth ~ 1 + (1 + age {bar} site)", local_group="site" if local else "none")
    latents = draw(model)
    z = {k: np.asarray(v) for k, v in latents.items()}
    scale = np.diag(z["sd_site"]) @ (z["correlation_site"] if bar == "|" else np.eye(2))
    effects = z["effects_site"]
    order = np.argsort(table["site"], kind="stable") if local else np.arange(NUM_ROWS)
    site, age, growth = (table[name][order] for name in ("site", "age", "growth"))
    eta = z["intercept"] + effects[site, 0] + effects[site, 1] * age
    aligned = {**latents, "effects_site": latents["effects_site"][site]} if local else latents
    np.testing.assert_allclose(
        model.log_likelihood(aligned, rows), stats.norm(eta, z["sigma"]).logpdf(growth), rtol=1e-9
    )
    assert model.local_latents == ({"effects_site": 0} if local else {})
    if local:
        assert model.spec.entry_counts == tuple(np.bincount(table["site"], minlength=5))
    prior = model.prior(model.spec)
    moved = {**latents, "effects_site": latents["effects_site"] + 0.5}
    density = stats.multivariate_normal(np.zeros(2), scale @ scale.T)
    expected = (density.logpdf(z["effects_site"] + 0.5) - density.logpdf(z["effects_site"])).sum()
    np.testing.assert_allclose(prior.log_prob(moved) - prior.log_prob(latents), expected, rtol=1e-7)
    summaries = model.summaries(latents, rows) if not local else model.summaries(aligned, rows)
    if bar == "|":
        np.testing.assert_allclose(summaries["cor_site"], [(z["correlation_site"] @ z["correlation_site"].T)[1, 0]])


@pytest.mark.parametrize(
    ("formula", "options", "said"),
    [
        (
            "growth ~ age",
            {"family": "poisson"},
            r"training row \d+: 'growth' is .*family poisson takes whole numbers from 0",
        ),
        ("growth ~ age", {"family": "bernoulli"}, "family bernoulli takes 0 or 1"),
        ("species ~ age", {}, "'species' is a category of 3 levels"),
        ("growth ~ log(age - 5)", {}, r"training row \d+: column log\(age - 5\) is"),
        ("I(1e300 * growth) ~ age", {}, r"training row 1: the outcome or the offset is -?\d.*e\+\d+"),
        ("growth ~ I(0 * age)", {}, "has the same value, 0, in all rows"),
        ("growth ~ (1 | age)", {}, "are read as numbers"),
        ("I(0 * growth) ~ age", {}, r"the outcome 'I\(0 \* growth\)' has the same value, 0, in all rows"),
        ("stage ~ age", {"family": "binomial"}, "needs the number of trials"),
        ("growth ~ age", {"trials": "plots"}, "the family normal has no trials"),
        ("growth ~ age", {"weights": "growth"}, r"training row \d+: the weight is -"),
        ("growth ~ age", {"offset": "mas"}, "key 'model.offset': no column 'mas' in the data"),
        ("growth ~ age", {"centred": ["site"]}, "key 'model.centred': 'site' has no effects"),
        ("growth ~ age", {"local_group": "site"}, "key 'model.local_group': 'site' has no effects"),
        ("stage ~ age + (1 | site)", {"family": "categorical"}, "takes no effects of groups"),
    ],
)
def test_what_does_not_fit_the_data_is_named(formula: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        make(formula, **options)
    assert caught.value.remedy


def test_coefficients_come_back_in_the_units_of_the_table() -> None:
    spec, table = trees(NUM_ROWS)
    columns, variables, raw = dict(table), dict(spec.variables), dict(table)
    for name in ("age", "mass", "growth"):
        mean, scale = float(table[name].mean()), float(table[name].std())
        columns[name], variables[name] = (table[name] - mean) / scale, Variable("number", mean=mean, scale=scale)
    own = options_class("model", "glm")(
        formula="growth ~ age * mass + age:species + species + I(age**2) + log(plots + 1)"
    )
    spec, rows = prepare_rows(
        functools.partial(Glm.prepare, own), dataclasses.replace(spec, variables=variables), columns
    )
    model, rows = Glm(own, spec), {k: jnp.asarray(v) for k, v in rows.items()}
    found = model.summaries(draw(model), rows)
    (axis,) = model.axes()["b_original"]
    values = dict(zip(axis.labels, np.asarray(found["b_original"]), strict=True))
    levels = {f"species[{name}]": raw["species"] == i for i, name in enumerate(("ash", "elm", "fir"))}
    # A transform is one of the standardised column, and says so.
    raw |= {"I(age ** 2) of standardised age": columns["age"] ** 2, "log(plots + 1)": np.log(table["plots"] + 1)}
    parts = {
        name: np.prod([{**raw, **levels}[p] for p in name.split(":")], axis=0) for name in values if name != "intercept"
    }
    predicted = values["intercept"] + sum(values[name] * part for name, part in parts.items())
    about = variables["growth"]
    np.testing.assert_allclose(predicted, np.asarray(found["predictor"]) * about.scale + about.mean, rtol=1e-9)
    np.testing.assert_allclose(found["sigma_original"], draw(model)["sigma"] * about.scale)
    assert "b_original" not in make("growth ~ age")[0].axes()
    assert [each.name for each in model.shown()] == ["b_original", "sigma_original"]


@pytest.mark.parametrize(
    ("formula", "options", "expected"),
    [
        ("growth ~ age", {}, True),
        ("growth ~ age + (1 | site)", {}, True),
        ("growth ~ age + (1 | site)", {"centred": False}, False),
        ("growth ~ age + (1 | site) + (1 | species)", {}, False),
    ],
)
def test_coordinates_of_one_group_leave_no_correlations_to_learn(formula: str, options: Any, expected: bool) -> None:
    assert make(formula, **options)[0].has_unit_scale is expected
