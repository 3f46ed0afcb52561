"""Outcomes known in part against SciPy, row by row, and the checks of their columns."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.config.registry import options_class
from bayesmesh.data.base import DataSpec, FieldSpec, Variable
from bayesmesh.data.views import prepare_rows
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm import partial
from bayesmesh.models.glm.model import Glm

TABLE = {
    "y": np.array([0.5, 1.5, 3.0, 2.0, 4.0, 40.0]),
    "count": np.array([0.0, 1.0, 3.0, 2.0, 4.0, 9.0]),
    "x": np.array([-1.0, 0.0, 1.0, 2.0, 0.5, 0.3]),
    "kind": np.array([0, -1, 1, 2, 0, 1]),
    "end": np.array([0.0, 0.0, 0.0, 3.5, 0.0, 0.0]),
    "error": np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
    "least": np.array([0.2, 0.3, 1.0, 1.0, 2.0, 30.0]),
    "status": np.array([0, 1, 2, 3, 0, 2]),
}
LEVELS = {"status": Variable("category", levels=("none", "left", "right", "interval"))}


def make(
    formula: str, family: str = "normal", table: Any = TABLE, variables: Any = LEVELS, **options: Any
) -> tuple[Glm, dict[str, Any]]:
    """Return a model of a table in float64, and its rows."""
    columns = {name: np.asarray(v) for name, v in table.items()}
    num_codes = {k: int(v.max()) + 1 for k, v in columns.items() if v.dtype.kind in "iu" and v.min() >= 0}
    fields = {name: FieldSpec((), v.dtype.name, num_codes.get(name, 0)) for name, v in columns.items()}
    spec = DataSpec(len(table["y"]), fields, {}, "float64", variables=variables)
    own = options_class("model", "glm")(formula=formula, family=family, **options)
    prepared, rows = prepare_rows(functools.partial(Glm.prepare, own), spec, table)
    return Glm(own, prepared), {k: jnp.asarray(v) for k, v in rows.items()}


def draw(model: Glm) -> dict[str, Any]:
    return model.prior(model.spec).sample(seed=jax.random.key(3))


def predictor(z: Any) -> np.ndarray:
    return np.asarray(z["intercept"] + z["coefficients"][0] * (TABLE["x"] - TABLE["x"].mean()))


def by_kind(base: Any, y: np.ndarray, *, is_discrete: bool = False) -> np.ndarray:
    """Return the log likelihood of rows censored as `kind` says."""
    exact = base.logpmf(y) if is_discrete else base.logpdf(y)
    with np.errstate(divide="ignore", invalid="ignore"):
        between = np.where(base.cdf(y) < 0.5, np.log(base.cdf(TABLE["end"]) - base.cdf(y)), np.log(base.sf(y) - base.sf(TABLE["end"])))  # fmt: skip
    return np.select([TABLE["kind"] == k for k in (0, -1, 1)], [exact, base.logcdf(y), base.logsf(y)], between)


@pytest.mark.parametrize("column", ["kind", "status"])
@pytest.mark.parametrize("family", ["normal", "weibull", "log_normal", "exponential", "poisson"])
def test_censored_rows_have_the_probability_of_what_is_known(family: str, column: str) -> None:
    with jax.enable_x64(True):
        outcome = "count" if family == "poisson" else "y"
        model, rows = make(f"{outcome} ~ x", family, censored=column, interval_end="end")
        z = draw(model)
        z = {**z, "intercept": jnp.asarray(0.4), "coefficients": jnp.asarray([0.3])}
        eta, y = predictor(z), TABLE[outcome]
        bases = {
            "normal": lambda: stats.norm(eta, z["sigma"]),
            "weibull": lambda: stats.weibull_min(z["shape"], scale=np.exp(eta) / special.gamma(1 + 1 / z["shape"])),
            "exponential": lambda: stats.expon(scale=np.exp(eta)),
            "log_normal": lambda: stats.lognorm(z["sigma"], scale=np.exp(eta)),
            "poisson": lambda: stats.poisson(np.exp(eta)),
        }
        wanted = by_kind(bases[family](), y, is_discrete=family == "poisson")
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)
        gradient = jax.grad(lambda z: model.log_likelihood(z, rows).sum())(z)
        assert all(np.isfinite(part).all() for part in gradient.values())


def test_truncated_rows_are_divided_by_the_probability_of_being_seen() -> None:
    with jax.enable_x64(True):
        model, rows = make("y ~ x", truncated={"lower": "least", "upper": 50.0})
        z = {"intercept": jnp.asarray(2.0), "coefficients": jnp.asarray([0.3]), "sigma": jnp.asarray(2.0)}
        base = stats.norm(predictor(z), 2.0)
        seen = base.sf(TABLE["least"]) - base.sf(50.0)
        wanted = base.logpdf(TABLE["y"]) - np.log(seen)
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)
        np.testing.assert_allclose(model.predict(z, rows).log_prob(rows["outcome"]), wanted, rtol=1e-10)
        keys = jax.random.split(jax.random.key(1), 4000)
        drawn = np.asarray(jax.vmap(lambda key: model.predict(z, rows).sample(seed=key))(keys))
        for i in range(5):
            low, high = ((end - predictor(z)[i]) / 2 for end in (TABLE["least"][i], 50.0))
            assert stats.kstest(drawn[:, i], stats.truncnorm(low, high, predictor(z)[i], 2).cdf).pvalue > 1e-4


def test_truncated_counts_include_their_bounds() -> None:
    with jax.enable_x64(True):
        table = {**TABLE, "count": TABLE["count"] + 1}
        model, rows = make("count ~ x", "poisson", table, truncated={"lower": 1})
        z = {"intercept": jnp.asarray(0.4), "coefficients": jnp.asarray([0.3])}
        base = stats.poisson(np.exp(predictor(z)))
        wanted = base.logpmf(table["count"]) - base.logsf(0)
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)
        keys = jax.random.split(jax.random.key(1), 1000)
        drawn = np.asarray(jax.jit(jax.vmap(lambda key: model.predict(z, rows).sample(seed=key)))(keys))
        assert drawn.min() == 1
        share = np.mean(drawn == 1, axis=0)
        np.testing.assert_allclose(share, base.pmf(1) / base.sf(0), atol=0.06)


@pytest.mark.parametrize(
    ("family", "truncated"),
    [
        ("normal", {"lower": "least", "upper": 50.0}),
        ("normal", {"lower": -400.0}),
        ("student_t", {"lower": "least"}),
        ("log_normal", {"lower": "least"}),
        ("weibull", {"upper": 41.0}),
        ("poisson", {"upper": 41}),
        ("negative_binomial", {"lower": 1}),
    ],
)
def test_means_of_truncated_outcomes_are_integrals_of_their_density(family: str, truncated: dict[str, Any]) -> None:
    with jax.enable_x64(True):
        is_discrete = family in ("poisson", "negative_binomial")
        model, rows = make(
            f"{'count' if is_discrete else 'y'} ~ x",
            family,
            {**TABLE, "count": TABLE["count"] + 1},
            truncated=truncated,
        )
        z = {"intercept": 0.4, "coefficients": [0.9], "sigma": 1.5, "nu": 3.0, "shape": 0.7}
        predictive = model.predict({k: jnp.asarray(v) for k, v in z.items()}, rows)
        low, high = (np.asarray(rows[name], float) for name in ("lower", "upper"))
        eta = 0.4 + 0.9 * (TABLE["x"] - TABLE["x"].mean())
        mean = np.exp(eta)
        base = {
            "student_t": lambda: stats.t(3.0, eta, 1.5),
            "log_normal": lambda: stats.lognorm(1.5, scale=mean),
            "weibull": lambda: stats.weibull_min(0.7, scale=mean / special.gamma(1 + 1 / 0.7)),
            "poisson": lambda: stats.poisson(mean),
            "negative_binomial": lambda: stats.nbinom(0.7, 0.7 / (0.7 + mean)),
        }.get(family, lambda: None)()
        if family == "normal":
            wanted = stats.truncnorm((low - eta) / 1.5, (high - eta) / 1.5, eta, 1.5).mean()
        elif is_discrete:
            y = np.arange(20000.0)[:, None]
            density = base.pmf(y) * ((y > low) & (y <= high))
            wanted = (y * density).sum(axis=0) / density.sum(axis=0)
        else:
            # The quantiles of the truncated distribution, at the nodes of a rule that is dense at both ends.
            u = np.linspace(-4.0, 4.0, 4001)
            tail = special.expit(-np.pi * np.abs(np.sinh(u)))[:, None]
            weight = (np.pi * np.cosh(u))[:, None] * tail * (1 - tail) * (u[1] - u[0])
            p, q = (base.cdf(low), base.sf(high))
            below, above = base.ppf(p + (1 - p - q) * tail), base.isf(q + (1 - p - q) * tail)
            wanted = (weight * np.where(u[:, None] < 0, below, above)).sum(axis=0)
        np.testing.assert_allclose(predictive.mean(), wanted, rtol=1e-6)


def test_rounded_outcomes_and_known_errors() -> None:
    with jax.enable_x64(True):
        z = {"intercept": jnp.asarray(2.0), "coefficients": jnp.asarray([0.3]), "sigma": jnp.asarray(3.0)}
        model, rows = make("y ~ x", rounded=0.5)
        base, y = stats.norm(predictor(z), 3.0), TABLE["y"]
        wanted = np.where(
            y < predictor(z), base.cdf(y + 0.25) - base.cdf(y - 0.25), base.sf(y - 0.25) - base.sf(y + 0.25)
        )
        np.testing.assert_allclose(model.log_likelihood(z, rows), np.log(wanted), rtol=1e-10)
        model, rows = make("y ~ x", known_error="error")
        wanted = stats.norm(predictor(z), np.hypot(3.0, TABLE["error"])).logpdf(y)
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)
        assert "error" in model.prediction_fields()
        model, rows = make("y ~ x", known_error="error", parameters={"sigma": 0})
        del z["sigma"]
        wanted = stats.norm(predictor(z), TABLE["error"]).logpdf(y)
        np.testing.assert_allclose(model.log_likelihood(z, rows), wanted, rtol=1e-10)


def test_predictions_of_a_censored_model_are_of_the_uncensored_outcome() -> None:
    model, _ = make("y ~ x", "weibull", censored="kind", interval_end="end")
    assert model.prediction_fields() == {"x"}


ENDS = {"above": "left", "up_to": "right"}


@pytest.mark.parametrize("family", ["normal", "weibull", "log_normal", "poisson"])
@pytest.mark.parametrize(
    ("column", "levels", "kinds"),
    [
        ("kind", (), [0, -1, 1, 1, 0, 1]),
        ("kind", (), [0, 0, 1, 1, 0, 1]),
        ("side", ("right", "none"), [1, 1, 0, 0, 1, 0]),
        ("side", ("left", "none"), [1, 0, 1, 0, 1, 0]),
    ],
)
def test_rows_censored_on_known_sides_are_those_of_any_kind(
    family: str, column: str, levels: tuple[str, ...], kinds: list[int]
) -> None:
    """Where no row lies between two numbers, each needs one tail; the key of ends asks for all of them."""
    table, variables = (
        TABLE | {column: np.array(kinds)},
        {column: Variable("category", levels=levels)} if levels else {},
    )
    outcome = "count" if family == "poisson" else "y"
    model, rows = make(f"{outcome} ~ x", family, table, variables, censored=column)
    general, of_all = make(f"{outcome} ~ x", family, table, variables, censored=column, interval_end="end")
    found = levels or [kind for kind, code in partial.KINDS.items() if code in kinds]
    assert {"above", "up_to"} & rows.keys() == {end for end, kind in ENDS.items() if kind in found}
    z = draw(model)
    np.testing.assert_allclose(model.log_likelihood(z, rows), general.log_likelihood(z, of_all), rtol=1e-12)
    pairs = ((model, rows), (general, of_all))
    gradients = [jax.grad(lambda z, m=m, r=r: m.log_likelihood(z, r).sum())(z) for m, r in pairs]
    for name, expected in gradients[1].items():
        np.testing.assert_allclose(gradients[0][name], expected, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    ("options", "family", "message"),
    [
        ({"censored": "knd"}, "normal", "'model.censored': no column 'knd'"),
        ({"censored": "kind"}, "normal", "'model.censored': training row 4: 2 is an interval without an end"),
        ({"censored": "end"}, "normal", "'model.censored': training row 4: 3.5 is not a kind of censoring"),
        ({"interval_end": "end"}, "normal", "'model.interval_end': no column says which rows are intervals"),
        ({"censored": "kind", "interval_end": "x"}, "normal", "'model.interval_end': training row 4: 2 is not above the outcome"),
        ({"truncated": {"lower": 1.0}}, "normal", "'model.truncated.lower': training row 1: 1 excludes the outcome of its row"),
        ({"truncated": {"upper": "x"}}, "normal", "'model.truncated.upper': training row 1: -1 excludes the outcome"),
        ({"truncated": {"upper": "z"}}, "normal", "'model.truncated.upper': no column 'z'"),
        ({"known_error": "x"}, "normal", "'model.known_error': training row 1: -1 is not a standard error"),
        ({"known_error": "error"}, "gamma", "the family gamma takes no known errors"),
        ({"rounded": 0.0}, "normal", "'model.rounded': 0 is not greater than 0"),
        ({"rounded": "x"}, "normal", "'model.rounded': training row 1: -1 is not greater than 0"),
        ({"rounded": -1.0}, "normal", "'model.rounded': -1 is not greater than 0"),
        ({"censored": "kind"}, "ordinal", "the family ordinal has no cumulative distribution function"),
        ({"parameters": {"sigma": 0}}, "normal", "'model.parameters.sigma': 0 leaves no spread"),
    ],
)  # fmt: skip
def test_rows_that_contradict_themselves_are_errors(options: dict[str, Any], family: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make("y ~ x" if family != "ordinal" else "status ~ x", family, **options)


@pytest.mark.parametrize("family", ["weibull", "gamma"])
@pytest.mark.parametrize(
    ("row", "options", "kind", "upper"),
    [(3, {"censored": "kind", "interval_end": "end"}, "left instead of interval in the column 'kind'", 3.5),
     (4, {"censored": "kind", "interval_end": "end", "rounded": 0.5}, "left in the column of the key 'model.censored'", 0.25)],
)  # fmt: skip
def test_what_is_known_to_lie_above_0_is_censored_on_the_left(
    family: str, row: int, options: dict[str, Any], kind: str, upper: float
) -> None:
    zero, left, end = (np.where(np.arange(6) == row, new, TABLE[name]) for name, new in (("y", 0.0), ("kind", -1), ("y", upper)))  # fmt: skip
    with pytest.raises(ConfigError, match=f"training row {row + 1}: 'y' is 0") as caught:
        make("y ~ x", family, TABLE | {"y": zero}, **options)
    assert (
        caught.value.remedy
        == f"write {kind}, and {'the end' if row == 3 else 'half the rounding'}, {upper:g}, as the outcome"
    )
    _, rows = make("y ~ x", family, TABLE | {"y": end, "kind": left}, **options)
    assert (rows["above"][row], rows["up_to"][row]) == (-np.inf, upper)


@pytest.mark.parametrize(
    "options",
    [{"censored": "kind", "interval_end": "end"}, {"truncated": {"lower": 0.0}}, {"rounded": 0.5}],
    ids=["interval_end", "truncated", "rounded"],
)
def test_ends_in_the_unit_of_a_column_do_not_fit_its_transform(options: dict[str, Any]) -> None:
    key = [*options][-1]
    with pytest.raises(ConfigError, match=rf"'model.{key}'.*'I\(2 \* y\)' is a transform") as caught:
        make("I(2 * y) ~ x", **options)
    assert "put the transformed outcome into the table" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("code", "family", "message"),
    [
        (1, "weibull", "'model.censored': all training rows are censored on the right"),
        (-1, "normal", "'model.censored': all training rows are censored on the left"),
        (-1, "poisson", "'model.censored': all training rows are censored on the left"),
    ],
)
def test_rows_that_are_all_censored_on_one_side_are_an_error(code: int, family: str, message: str) -> None:
    """Rows that are censored on different sides bound the outcome."""
    outcome = "count" if family == "poisson" else "y"
    with pytest.raises(ConfigError, match=message):
        make(f"{outcome} ~ x", family, TABLE | {"kind": np.full(6, code)}, censored="kind")
    make(f"{outcome} ~ x", family, TABLE | {"kind": np.array([1, 1, 1, -1, 1, 1])}, censored="kind")


@pytest.mark.parametrize(
    ("family", "is_excluded"),
    [("hurdle_gamma", True), ("hurdle_log_normal", True), ("exponential", False), ("hurdle_poisson", False)],
)
def test_a_bound_excludes_outcomes_that_have_a_probability_there(family: str, is_excluded: bool) -> None:
    """Outcomes lie above the lower bound: the zeros of a hurdle do not, densities do not mind, and bounds of counts are among them."""
    table = TABLE | {"some": np.array([0.0, 1, 2, 0, 3, 1])}
    if is_excluded:
        with pytest.raises(ConfigError, match=r"'model\.truncated\.lower': training row 1: 0 excludes the outcome"):
            make("some ~ x", family, table, truncated={"lower": 0.0})
    else:
        make("some ~ x", family, table, truncated={"lower": 0.0})


@pytest.mark.parametrize(("outcome", "family"), [("y", "normal"), ("count", "poisson"), ("status", "categorical")])
def test_weights_that_are_all_0_are_an_error(outcome: str, family: str) -> None:
    with pytest.raises(ConfigError, match=r"'model\.weights': 'none' is 0 in all training rows"):
        make(f"{outcome} ~ x", family, TABLE | {"none": np.zeros(6)}, weights="none")
