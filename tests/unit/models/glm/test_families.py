"""Every family has the density, distribution function, mean and draws that SciPy has under its parameters, and exact slopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from bayesmesh.models.glm.families._cdf import log_beta_below, log_gamma_above, log_gamma_below
from bayesmesh.models.glm.families.base import Family, family_of
from bayesmesh.models.glm.families.student_t import StudentT
from bayesmesh.models.options import FAMILIES

NUM_POINTS, NUM_DRAWS, TRIALS = 20, 10_000, 9
PARAMETERS = {
    "sigma": 0.8,
    "nu": 3.5,
    "shape": 1.7,
    "phi": 6.0,
    "zi": 0.3,
    "hu": 0.4,
    "quantile": 0.7,
    "cut_zero": -1.2,
    "gap": 2.5,
}
BASELINE = np.array([0.2, 0.5, 0.3])

LINKS: dict[str, Callable[[Any], Any]] = {
    "logit": special.expit,
    "probit": special.ndtr,
    "cloglog": lambda eta: -np.expm1(-np.exp(eta)),
    "log": np.exp,
    "identity": lambda eta: eta,
}


class Zeros:
    """A distribution of SciPy with zeros beside it; `is_apart` where the rest has none of its own."""

    def __init__(self, rest: Any, share: float, *, is_apart: bool, is_count: bool) -> None:
        self.rest, self.share, self.is_count = rest, share, is_count
        self.none = rest.pmf(0) if is_apart and is_count else 0.0
        self.is_apart = is_apart

    def logpmf(self, y: Any) -> Any:
        rest = self.rest.pmf(y) if self.is_count else np.where(y > 0, self.rest.pdf(np.where(y > 0, y, 1.0)), 0.0)
        rest = np.where((y == 0) & self.is_apart, 0.0, rest / (1 - self.none))
        return np.log(np.where(y == 0, self.share, 0.0) + (1 - self.share) * rest)

    def cdf(self, y: Any) -> Any:
        rest = np.maximum(self.rest.cdf(y) - self.none, 0) / (1 - self.none)
        return np.where(y < 0, 0.0, self.share + (1 - self.share) * rest)

    def sf(self, y: Any) -> Any:
        return np.where(y < 0, 1.0, (1 - self.share) * self.rest.sf(y) / (1 - self.none))

    def mean(self) -> Any:
        return (1 - self.share) * self.rest.mean() / (1 - self.none)


class Levels:
    """Probabilities of levels, (level,)."""

    def __init__(self, p: np.ndarray) -> None:
        self.p = p

    def logpmf(self, y: Any) -> Any:
        return np.log(self.p[np.asarray(y, int)])

    def cdf(self, y: Any) -> Any:
        return np.append(0.0, np.cumsum(self.p))[np.asarray(np.floor(y), int) + 1]


class OrderedBeta:
    """0, 1 or a beta between them."""

    def __init__(self, eta: float, p: Mapping[str, float]) -> None:
        self.low = 1 - special.expit(eta - p["cut_zero"])
        self.high = special.expit(eta - p["cut_zero"] - p["gap"])
        m, phi = special.expit(eta), p["phi"]
        self.inside = stats.beta(m * phi, (1 - m) * phi)

    def logpmf(self, y: Any) -> Any:
        with np.errstate(divide="ignore"):
            inside = np.log(1 - self.low - self.high) + self.inside.logpdf(np.clip(y, 1e-12, 1 - 1e-12))
        return np.where(y == 0, np.log(self.low), np.where(y == 1, np.log(self.high), inside))

    def cdf(self, y: Any) -> Any:
        rest = self.low + (1 - self.low - self.high) * self.inside.cdf(y)
        return np.where(y < 0, 0.0, np.where(y >= 1, 1.0, rest))

    def mean(self) -> Any:
        return self.high + (1 - self.low - self.high) * self.inside.mean()


class AsymmetricLaplace:
    """Its density written out; draws and distribution by quadrature of exponentials."""

    def __init__(self, eta: float, p: Mapping[str, float]) -> None:
        self.eta, self.sigma, self.p = eta, p["sigma"], p["quantile"]

    def logpdf(self, y: Any) -> Any:
        z = (y - self.eta) / self.sigma
        return np.log(self.p * (1 - self.p) / self.sigma) - z * (self.p - (z < 0))

    def cdf(self, y: Any) -> Any:
        z = (np.asarray(y) - self.eta) / self.sigma
        below = self.p * np.exp((1 - self.p) * np.minimum(z, 0))
        return np.where(z < 0, below, 1 - (1 - self.p) * np.exp(-self.p * np.maximum(z, 0)))

    def sf(self, y: Any) -> Any:
        return 1 - self.cdf(y)

    def mean(self) -> Any:
        return self.eta + self.sigma * (1 / self.p - 1 / (1 - self.p))


def _ordinal(eta: float, link: str) -> Levels:
    inverse = {"logit": special.logit, "probit": special.ndtri, "cloglog": lambda p: np.log(-np.log1p(-p))}[link]
    up_to = LINKS[link](inverse(np.cumsum(BASELINE)[:-1]) - eta)
    return Levels(np.diff(np.concatenate([[0.0], up_to, [1.0]])))


def _sequential(eta: float, link: str) -> Levels:
    inverse = {"logit": special.logit, "probit": special.ndtri, "cloglog": lambda p: np.log(-np.log1p(-p))}[link]
    stop = LINKS[link](inverse(BASELINE[:-1] / np.cumsum(BASELINE[::-1])[::-1][:-1]) - eta)
    return Levels(np.array([stop[0], (1 - stop[0]) * stop[1], (1 - stop[0]) * (1 - stop[1])]))


def reference(name: str, link: str, eta: float, p: Mapping[str, float] = PARAMETERS) -> Any:
    """Return SciPy's distribution."""
    m = LINKS[link](eta)
    poisson, negative_binomial = (
        stats.poisson(np.exp(eta)),
        stats.nbinom(p["shape"], p["shape"] / (p["shape"] + np.exp(eta))),
    )
    gamma = stats.gamma(p["shape"], scale=np.exp(eta) / p["shape"])
    log_normal = stats.lognorm(p["sigma"], scale=np.exp(eta))
    return {
        "normal": lambda: stats.norm(eta, p["sigma"]),
        "student_t": lambda: stats.t(p["nu"], eta, p["sigma"]),
        "bernoulli": lambda: stats.bernoulli(m),
        "binomial": lambda: stats.binom(TRIALS, m),
        "poisson": lambda: poisson,
        "negative_binomial": lambda: negative_binomial,
        "gamma": lambda: gamma,
        "categorical": lambda: Levels(special.softmax([0.0, eta, -eta])),
        "ordinal": lambda: _ordinal(eta, link),
        "sequential": lambda: _sequential(eta, link),
        "log_normal": lambda: log_normal,
        "exponential": lambda: stats.expon(scale=np.exp(eta)),
        "weibull": lambda: stats.weibull_min(p["shape"], scale=np.exp(eta) / special.gamma(1 + 1 / p["shape"])),
        "inverse_gaussian": lambda: stats.invgauss(np.exp(eta) / p["shape"], scale=p["shape"]),
        "beta": lambda: stats.beta(m * p["phi"], (1 - m) * p["phi"]),
        "beta_binomial": lambda: stats.betabinom(TRIALS, m * p["phi"], (1 - m) * p["phi"]),
        "asymmetric_laplace": lambda: AsymmetricLaplace(eta, p),
        "zero_inflated_poisson": lambda: Zeros(poisson, p["zi"], is_apart=False, is_count=True),
        "zero_inflated_negative_binomial": lambda: Zeros(negative_binomial, p["zi"], is_apart=False, is_count=True),
        "hurdle_poisson": lambda: Zeros(poisson, p["hu"], is_apart=True, is_count=True),
        "hurdle_negative_binomial": lambda: Zeros(negative_binomial, p["hu"], is_apart=True, is_count=True),
        "hurdle_gamma": lambda: Zeros(gamma, p["hu"], is_apart=True, is_count=False),
        "hurdle_log_normal": lambda: Zeros(log_normal, p["hu"], is_apart=True, is_count=False),
        "ordered_beta": lambda: OrderedBeta(eta, p),
    }[name]()


class Case(NamedTuple):
    """A family with a link."""

    name: str
    link: str

    @property
    def family(self) -> Family:
        return family_of(self.name, self.link)


CASES = [Case(name, link) for name in FAMILIES for link in family_of(name).links]
by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.link}")


def given(dtype: Any = float) -> dict[str, jax.Array]:
    return {k: jnp.asarray(v, dtype) for k, v in {**PARAMETERS, "baseline": BASELINE}.items()}


def predictors(case: Case, eta: np.ndarray) -> jax.Array:
    return (
        jnp.stack([eta, -eta], axis=1) if case.family.takes_levels and case.name == "categorical" else jnp.asarray(eta)
    )


def rows_of(y: Any, dtype: Any = float) -> dict[str, jax.Array]:
    return {"outcome": jnp.asarray(y, dtype), "trials": jnp.full(len(y), TRIALS)}


def draw(case: Case, eta: np.ndarray, seed: int = 1) -> np.ndarray:
    found = case.family.predict(predictors(case, eta), rows_of(eta), given()).sample(seed=jax.random.key(seed))
    return np.array(found, float)


def outcomes(case: Case, eta: np.ndarray) -> np.ndarray:
    """Random outcomes, with edges in place of the first ones."""
    y = draw(case, eta)
    edges = {"ordered_beta": [0, 1], "binomial": [0, TRIALS], "beta_binomial": [0, TRIALS]}.get(case.name)
    edges = edges or ([0, 0, 30] if case.family.is_discrete and case.family.link == "log" else [])
    edges = edges or ([0, 0] if case.name.startswith("hurdle") or case.name == "exponential" else [])
    y[: len(edges)] = edges
    return y


def dtype_of(case: Case) -> Any:
    return jnp.int32 if case.family.is_discrete else float


def log_densities(known: list[Any], y: np.ndarray) -> np.ndarray:
    """Return the log density of each outcome under its distribution."""
    return np.array([(d.logpmf if hasattr(d, "logpmf") else d.logpdf)(v) for d, v in zip(known, y, strict=True)])


@by_case
def test_densities_and_slopes_are_those_of_scipy(case: Case) -> None:
    with jax.enable_x64(True):
        eta = np.random.default_rng(0).normal(0, 0.6, NUM_POINTS)
        y = outcomes(case, eta)
        constant = case.family.constant(y, np.full(NUM_POINTS, float(TRIALS)))

        def total(at: jax.Array) -> jax.Array:
            return case.family.log_density(predictors(case, at), rows_of(y, dtype_of(case)), given())

        def exact(at: np.ndarray) -> np.ndarray:
            found = [reference(case.name, case.link, e) for e in at]
            return log_densities(found, y)

        value = np.asarray(total(jnp.asarray(eta))) + (0 if constant is None else constant)
        np.testing.assert_allclose(value, exact(eta), rtol=1e-6, atol=1e-8)
        slope = jax.grad(lambda at: total(at).sum())(jnp.asarray(eta))
        h = 1e-4
        numeric = (8 * (exact(eta + h) - exact(eta - h)) - exact(eta + 2 * h) + exact(eta - 2 * h)) / (12 * h)
        np.testing.assert_allclose(slope, numeric, rtol=1e-6, atol=1e-6)


@by_case
def test_parameters_may_differ_between_rows(case: Case) -> None:
    """Densities, their slopes by each parameter, tails, means and draws then follow the row's own."""
    r = np.random.default_rng(6)
    with jax.enable_x64(True):
        eta, y = r.normal(0, 0.6, NUM_POINTS), outcomes(case, np.zeros(NUM_POINTS))
        own = {
            name: PARAMETERS[name] * r.uniform(0.8, 1.2, NUM_POINTS)
            for name in case.family.parameters
            if name != "baseline"
        }

        on_device = {name: jnp.asarray(values) for name, values in own.items()}

        def known(**changed: Any) -> list[Any]:
            rows = [{name: values[i] for name, values in (own | changed).items()} for i in range(NUM_POINTS)]
            return [reference(case.name, case.link, e, PARAMETERS | each) for e, each in zip(eta, rows, strict=True)]

        def total(parameters: Any) -> jax.Array:
            return case.family.log_density(predictors(case, eta), rows_of(y, dtype_of(case)), given() | parameters)

        exact, constant = log_densities(known(), y), case.family.constant(y, np.full(NUM_POINTS, float(TRIALS)))
        values = np.asarray(total(on_device)) + (0 if constant is None else constant)
        np.testing.assert_allclose(values, exact, rtol=1e-6, atol=1e-8)
        slopes = jax.grad(lambda parameters: total(parameters).sum())(on_device)
        for name, slope in slopes.items():
            h = 1e-4
            one, two = (
                log_densities(known(**{name: own[name] + k * h}), y)
                - log_densities(known(**{name: own[name] - k * h}), y)
                for k in (1, 2)
            )
            np.testing.assert_allclose(slope, (8 * one - two) / (12 * h), rtol=1e-6, atol=1e-6, err_msg=name)
        if case.family.has_cdf:
            ends = jnp.asarray(y), predictors(case, eta), rows_of(y), given() | on_device
            below = [d.cdf(v) for d, v in zip(known(), y, strict=True)]
            np.testing.assert_allclose(np.exp(case.family.log_cdf(*ends)), below, rtol=1e-6, atol=1e-12)
            np.testing.assert_allclose(
                np.exp(case.family.log_survival(*ends)), 1 - np.array(below), rtol=1e-6, atol=1e-9
            )
        outcome = case.family.predict(predictors(case, eta), rows_of(y), given() | on_device)
        assert outcome.sample(seed=jax.random.key(1)).shape == (NUM_POINTS,)
        if hasattr(known()[0], "mean"):
            np.testing.assert_allclose(outcome.mean(), [d.mean() for d in known()], rtol=1e-6)


FAR = {
    "gamma below": (log_gamma_below, special.gammainc, [(5, 1e-20), (201, 20), (1001, 600), (10_001, 8_500)]),
    "gamma above": (log_gamma_above, special.gammaincc, [(2, 400), (201, 500), (1001, 1_800), (10_001, 12_000)]),
    "beta below": (log_beta_below, special.betainc, [(50, 0.5, 0.01), (200, 800, 0.02), (1_000, 9_000, 0.05), (5_000, 5_000, 0.4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FAR)
def test_tails_below_the_smallest_number_of_single_precision_are_exact(name: str) -> None:
    """There, probabilities and their slopes follow from a series, and a chain that starts far away is led back."""
    log_tail, exact, points = FAR[name]
    for point in points:
        given = [jnp.asarray(x, jnp.float32) for x in point]
        as_stored = [float(x) for x in given]
        known = np.log(exact(*as_stored))
        assert known < -88
        np.testing.assert_allclose(log_tail(*given), known, rtol=1e-4)
        (slope,) = jax.grad(log_tail, argnums=(len(point) - 1,))(*given)
        h = 1e-5 * as_stored[-1]
        ends = [np.log(exact(*as_stored[:-1], as_stored[-1] + sign * h)) for sign in (1, -1)]
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * h), rtol=1e-3)


@by_case
def test_draws_and_means_are_those_of_the_density(case: Case) -> None:
    with jax.enable_x64(True):
        eta = 0.4
        y, known = draw(case, np.full(NUM_DRAWS, eta), 3), reference(case.name, case.link, eta)
        # An atom at an end, or a count, is spread over its own probability.
        step = np.where(case.family.is_discrete, 1.0, 1e-9)
        below, up_to = known.cdf(y - step), known.cdf(y)
        spread = below + np.random.default_rng(2).random(NUM_DRAWS) * (up_to - below)
        assert stats.kstest(spread, "uniform").pvalue > 1e-4
        if hasattr(known, "mean"):
            found = case.family.predict(jnp.full(1, eta), rows_of([0.0]), given())
            np.testing.assert_allclose(found.mean(), known.mean(), rtol=1e-6)


@pytest.mark.parametrize("case", [c for c in CASES if c.family.has_cdf], ids=lambda case: f"{case.name}-{case.link}")
def test_both_tails_are_those_of_scipy(case: Case) -> None:
    with jax.enable_x64(True):
        eta = np.random.default_rng(4).normal(0, 0.6, NUM_POINTS)
        y = outcomes(case, eta)
        known = [reference(case.name, case.link, e) for e in eta]
        arguments = jnp.asarray(y), predictors(case, eta), rows_of(y), given()
        low, high = case.family.log_cdf(*arguments), case.family.log_survival(*arguments)
        with np.errstate(divide="ignore"):
            below, above = (
                np.log([getattr(d, name)(v) for d, v in zip(known, y, strict=True)]) for name in ("cdf", "sf")
            )
        # SciPy's own tails keep fewer digits than these where it subtracts from 1.
        np.testing.assert_allclose(np.exp(low), np.exp(below), rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(np.exp(high), np.exp(above), rtol=1e-6, atol=1e-12)

        def both(eta: Any, parameters: Any) -> Any:
            ends = (
                tail(jnp.asarray(y), eta, rows_of(y), parameters)
                for tail in (case.family.log_cdf, case.family.log_survival)
            )
            return sum(jnp.where(jnp.isfinite(end), end, 0.0).sum() for end in ends)

        slopes = jax.grad(both, argnums=(0, 1))(jnp.asarray(eta), {k: given()[k] for k in case.family.parameters})
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))


@by_case
@pytest.mark.parametrize("far", [-30.0, 30.0])
def test_extreme_predictors_give_finite_densities_in_single_precision(case: Case, far: float) -> None:
    """A start far from the data has a density, and a slope that leads back."""
    y = outcomes(case, np.zeros(NUM_POINTS))
    inner = {"beta": 0.3, "ordered_beta": 0.3}.get(case.name)
    rows = rows_of(np.full(NUM_POINTS, inner) if inner else y, jnp.int32 if case.family.is_discrete else jnp.float32)

    def total(eta: jax.Array) -> jax.Array:
        return case.family.log_density(predictors(case, eta), rows, given(jnp.float32)).sum()

    at = jnp.full(NUM_POINTS, far if case.link == "logit" or case.link == "identity" else far / 10, jnp.float32)
    assert np.isfinite(total(at))
    assert np.isfinite(jax.grad(total)(at)).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("name", ["hurdle_poisson", "hurdle_negative_binomial"])
def test_counts_above_zero_are_one_where_their_mean_vanishes(name: str, dtype: Any) -> None:
    """The probability to be above 0, by which that of a count is divided, may not be rounded to 0."""
    family, parameters = family_of(name), {"hu": jnp.asarray(0.3, dtype), "shape": jnp.asarray(2.0, dtype)}
    constant = family.constant(np.array([1.0]), None)

    def log_density(eta: jax.Array) -> jax.Array:
        return family.log_density(eta, {"outcome": jnp.asarray([1.0], dtype)}, parameters)[0]

    for far in (-8.0, -18.0, -40.0, -80.0):
        at = jnp.asarray([far], dtype)
        assert log_density(at) + constant[0] == pytest.approx(np.log(0.7), abs=1e-3)
        assert jax.grad(log_density)(at)[0] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
@pytest.mark.parametrize("name", ["ordinal", "sequential"])
def test_scores_of_ordered_levels_are_slopes_over_information(name: str, link: str) -> None:
    family = family_of(name, link)
    with jax.enable_x64(True):
        rows = {"outcome": jnp.arange(len(BASELINE))}
        of_levels = jax.vmap(
            jax.grad(lambda eta, row: family.log_density(eta[None], row, {"baseline": jnp.asarray(BASELINE)})[0])
        )
        slopes = np.asarray(of_levels(jnp.zeros(len(BASELINE)), {"outcome": rows["outcome"][:, None]}))
    information = np.sum(BASELINE * slopes**2)
    scores, variance = family.scores(BASELINE)
    np.testing.assert_allclose(scores, slopes / information, rtol=1e-9)
    np.testing.assert_allclose(variance, 1 / information, rtol=1e-9)


class Normal(StudentT):
    """A family of a user's own, with the name of one of the package."""


def test_a_family_of_the_users_own_is_named_by_its_module() -> None:
    """So that nothing takes it for the family of the same name."""
    name = f"{__name__}:Normal"
    assert isinstance(family_of(name), Normal)
    assert family_of(name).name == name
    assert family_of("normal").name == "normal"


@pytest.mark.parametrize(
    ("name", "link", "words"),
    [
        ("zero_inflated_poisson", None, "log: the predictor is the log of the mean of {y} before additional zeros"),
        ("hurdle_gamma", None, "log: the predictor is the log of the mean of {y} before zeros"),
        ("hurdle_log_normal", None, "identity: the predictor is the mean of log {y} before zeros"),
        ("ordinal", "probit", "probit: the predictor is the probit of the probability of a higher level of {y}"),
        (
            "ordinal",
            "cloglog",
            "cloglog: the predictor is minus the cloglog of the probability of at most a level of {y}",
        ),
        (
            "sequential",
            "cloglog",
            "cloglog: the predictor is minus the cloglog of the probability of stopping at a level",
        ),
        ("bernoulli", "cloglog", "cloglog: the predictor is the cloglog of the probability of {one}"),
    ],
)
def test_the_link_in_words_is_that_of_the_density(name: str, link: str | None, words: str) -> None:
    assert family_of(name, link).link_words.link.startswith(words)
