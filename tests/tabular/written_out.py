"""The models of `simulated`, written out with NumPyro, and closed forms where there are any; without the package.

Design matrices, priors and default priors are spelled out here, so that nothing of the formula, of the reading of tables,
of scaling or of centring is shared with what is tested.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import expit, logit

from tabular.family_models import FAMILY_MODELS

Columns = Mapping[str, np.ndarray]
Numbers = tuple[float, float, float, float]
"""Mean, standard deviation, and their standard errors."""


def flat_regression(
    x: Mapping[str, np.ndarray], y: np.ndarray, weights: np.ndarray | None = None
) -> dict[str, Numbers]:
    """Return the posterior of a normal regression with flat priors on coefficients and standard deviation.

    Given the data, the variance has an inverse gamma distribution and coefficients one of Student's t, with ``n - k - 1``
    degrees of freedom (Gelman et al. 2013, Bayesian Data Analysis, section 14.2, with the prior of sigma flat).
    """
    design, w = np.stack(list(x.values()), 1).astype(float), np.ones(len(y)) if weights is None else weights
    # Of columns of another scale the product with itself loses digits.
    scale = np.abs(design).max(0)
    inverse = np.linalg.inv((design / scale).T @ (w[:, None] * design / scale)) / np.outer(scale, scale)
    best = inverse @ (design.T @ (w * y))
    best += inverse @ (design.T @ (w * (y - design @ best)))
    rest, degrees = float(w @ (y - design @ best) ** 2), w.sum() - len(x) - 1
    found: dict[str, Numbers] = {}
    for name, mean, part in zip(x, best, np.diag(inverse), strict=True):
        found[name] = float(mean), math.sqrt(rest / (degrees - 2) * part), 0.0, 0.0
    sigma = math.sqrt(rest / 2) * math.exp(math.lgamma((degrees - 1) / 2) - math.lgamma(degrees / 2))
    found["sigma"] = sigma, math.sqrt(rest / (degrees - 2) - sigma**2), 0.0, 0.0
    return found


def _ones(y: np.ndarray) -> np.ndarray:
    return np.ones(len(y))


def _kidiq(t: Columns) -> dict[str, Numbers]:
    x = {"intercept_at_zero": _ones(t["hs"]), "b_hs": t["hs"], "b_iq": t["iq"], "b_hs:iq": t["hs"] * t["iq"]}
    return flat_regression(x, t["score"])


def _earnings(t: Columns) -> dict[str, Numbers]:
    x = {"intercept_at_zero": _ones(t["male"]), "b_height": t["height"], "b_male": t["male"]}
    return flat_regression(x, np.log(t["earn"]))


def _mesquite(t: Columns) -> dict[str, Numbers]:
    x = {"intercept_at_zero": _ones(t["weight"]), **{f"b_log({k})": np.log(t[k]) for k in ("diam1", "diam2", "height")}}
    return flat_regression(x | {"b_group[MCD]": t["group"] == "MCD"}, np.log(t["weight"]))


def _sblr(t: Columns) -> dict[str, Numbers]:
    return flat_regression({f"b_features[x{i}]": t[f"x{i}"] for i in range(5)}, t["y"])


def _weighted(t: Columns) -> dict[str, Numbers]:
    x = {"intercept_at_zero": _ones(t["y"]), "b_x": t["x"], "b_kind[elm]": t["kind"] == "elm", "b_kind[fir]": t["kind"] == "fir"}  # fmt: skip
    return flat_regression(x, t["y"], t["copies"].astype(float))


def _kilpisjarvi(t: Columns) -> dict[str, Numbers]:
    year, temp = t["year"][:62].astype(float), t["temp"][:62]
    return flat_regression({"intercept_at_zero": _ones(temp), "b_year": year}, temp)


CLOSED_FORMS: dict[str, Callable[[Columns], dict[str, Numbers]]] = {
    "kidiq": _kidiq, "earnings": _earnings, "mesquite": _mesquite, "sblr": _sblr, "weighted": _weighted, "kilpisjarvi": _kilpisjarvi,
}  # fmt: skip
"""Table -> its posterior."""


class Groups(NamedTuple):
    """Effects of groups: name, code of each row, what the effects multiply, their names, and rates of the priors of sds."""

    name: str
    code: np.ndarray
    x: np.ndarray
    effects: Sequence[str]
    rates: np.ndarray


def groups(name: str, values: np.ndarray, unit: float = 1.0, **slopes: np.ndarray) -> Groups:
    """Return groups with an intercept and slopes; by default the prior of a standard deviation has the rate of its size."""
    x = np.stack([np.ones(len(values)), *slopes.values()], 1).astype(float)
    code = np.unique(values, return_inverse=True)[1]
    return Groups(name, code, x, ["intercept", *slopes], np.sqrt((x**2).mean(0)) / unit)


class Regression(NamedTuple):
    """A generalised linear model.

    Attributes:
        x: quantity -> column.
        y: outcomes, or codes of levels.
        family: as the package calls it.
        scale: standard deviation of the priors of coefficients; by default 2.5 in units of column and outcome.
        intercept: mean and standard deviation of its prior, where columns have their means.
        groups: effects.
        offset: added to the predictor.
        trials: of the binomial family.
        levels: names of the outcomes of a categorical or ordinal one.
    """

    x: Mapping[str, np.ndarray]
    y: np.ndarray
    family: str
    scale: float | None = None
    intercept: tuple[float, float] | None = None
    groups: Sequence[Groups] = ()
    offset: np.ndarray | float = 0.0
    trials: np.ndarray | None = None
    levels: Sequence[str] = ()

    def __call__(self) -> None:
        """Be a model of NumPyro."""
        design = np.stack([np.broadcast_to(v, len(self.y)) for v in self.x.values()], 1).astype(float) if self.x else np.zeros((len(self.y), 0))  # fmt: skip
        unit = self.y.std() if self.family in ("normal", "student_t") else 1.0
        means, outputs = design.mean(0), (len(self.levels) - 1,) if self.family == "categorical" else ()
        scale = np.full(len(means), self.scale) if self.scale else 2.5 * unit / design.std(0)
        shape = (len(means), *outputs)
        b = numpyro.sample("b", dist.Normal(0, np.broadcast_to(scale.reshape(-1, *(1 for _ in outputs)), shape)))
        eta = (design - means) @ b + np.asarray(self.offset).reshape(-1, *(1 for _ in outputs))
        if self.family != "ordinal":
            location, width = self.intercept or (self._link(), 2.5 * unit)
            a = numpyro.sample("a", dist.Normal(location, width).expand(outputs))
            eta = eta + a
            self._say("intercept_at_zero", a - jnp.tensordot(means, b, 1))
        for name, value in zip(self.x, b, strict=True):
            self._say(name, value)
        for each in self.groups:
            eta = eta + _effects(each)
        _observe(self, eta, unit)

    def _say(self, name: str, value: Any) -> None:
        if jnp.ndim(value):
            for level, part in zip(self.levels[1:], value, strict=True):
                numpyro.deterministic(f"{name}[{level}]" if name[-1] != "]" else f"{name[:-1]},{level}]", part)
        else:
            numpyro.deterministic(name, value)

    def _link(self) -> float:
        mean = float(np.mean(self.y) / (1 if self.trials is None else np.mean(self.trials)))
        if self.family in ("bernoulli", "binomial"):
            return math.log(mean / (1 - mean))
        is_log = self.family in ("poisson", "negative_binomial", "gamma")
        return (math.log(mean) if is_log else mean) - float(np.mean(self.offset))


def _effects(each: Groups) -> Any:
    """Return what the effects of groups add to each row."""
    number, size = len(each.effects), int(each.code.max()) + 1
    sd = numpyro.sample(f"{each.name} sd", dist.Exponential(each.rates))
    z = numpyro.sample(f"{each.name} z", dist.Normal(0, 1).expand((size, number)))
    factor = jnp.eye(number)
    if number > 1:
        factor = numpyro.sample(f"{each.name} factor", dist.LKJCholesky(number, 1.0))
        correlation = factor @ factor.T
        for i in range(number):
            for j in range(i):
                numpyro.deterministic(f"cor_{each.name}[{each.effects[j]}~{each.effects[i]}]", correlation[i, j])
    for name, value in zip(each.effects, sd, strict=True):
        numpyro.deterministic(f"sd_{each.name}[{name}]", value)
    return ((z @ (sd[:, None] * factor).T)[each.code] * each.x).sum(1)


def _observe(r: Regression, eta: Any, unit: float) -> None:
    if r.family == "normal":
        numpyro.sample("y", dist.Normal(eta, numpyro.sample("sigma", dist.Exponential(1 / unit))), obs=r.y)
    elif r.family == "student_t":
        sigma, nu = numpyro.sample("sigma", dist.Exponential(1 / unit)), numpyro.sample("nu", dist.Gamma(2.0, 0.1))
        numpyro.sample("y", dist.StudentT(nu, eta, sigma), obs=r.y)
    elif r.family == "bernoulli":
        numpyro.sample("y", dist.BernoulliLogits(eta), obs=r.y)
    elif r.family == "binomial":
        numpyro.sample("y", dist.BinomialLogits(eta, r.trials), obs=r.y)
    elif r.family == "poisson":
        numpyro.sample("y", dist.Poisson(jnp.exp(eta)), obs=r.y)
    elif r.family == "negative_binomial":
        shape = numpyro.sample("shape", dist.InverseGamma(0.4, 0.3))
        numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(eta), shape), obs=r.y)
    elif r.family == "gamma":
        shape = numpyro.deterministic("shape", jnp.abs(numpyro.sample("raw", dist.StudentT(3.0, 0.0, 10.0))))
        numpyro.sample("y", dist.Gamma(shape, shape / jnp.exp(eta)), obs=r.y)
    elif r.family == "categorical":
        numpyro.sample("y", dist.CategoricalLogits(jnp.concatenate([jnp.zeros((len(r.y), 1)), eta], 1)), obs=r.y)
    else:
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(len(r.levels))))
        for level, value in zip(r.levels, p, strict=True):
            numpyro.deterministic(f"baseline[{level}]", value)
        numpyro.sample("y", dist.OrderedLogistic(eta, logit(jnp.cumsum(p)[:-1])), obs=r.y)


def _wells(t: Columns) -> Regression:
    x = {"b_dist": t["dist"], "b_arsenic": t["arsenic"], "b_dist:arsenic": t["dist"] * t["arsenic"]}
    return Regression(x, t["switch"], "bernoulli", 10.0, (0.0, 10.0))


def _nes(t: Columns) -> Regression:
    x = {"b_income": t["income"], "b_race[other]": t["race"] == "other", "b_race[white]": t["race"] == "white", "b_age[30-44]": t["age"] == "30-44", "b_age[45+]": t["age"] == "45+"}  # fmt: skip
    return Regression(x, (t["vote"] == "rep").astype(int), "bernoulli")


def _roaches(t: Columns) -> Regression:
    x = {"b_sqrt(before)": np.sqrt(t["before"]), "b_treated": t["treated"]}
    return Regression(x, t["y"], "negative_binomial", offset=t["log_days"])


def _peregrine(t: Columns) -> Regression:
    x = {"b_year": t["year"], "b_I(year to 2)": t["year"] ** 2, "b_I(year to 3)": t["year"] ** 3}
    return Regression(x, t["pairs"], "poisson", 10.0, (0.0, 10.0))


def _success(t: Columns) -> Regression:
    x = {"b_year": t["year"], "b_I(year to 2)": t["year"] ** 2}
    return Regression(x, t["fledged"], "binomial", trials=t["pairs"])


def _claims(t: Columns) -> Regression:
    return Regression({"b_age": t["age"], **{f"b_area[{a}]": t["area"] == a for a in "BCD"}}, t["cost"], "gamma")


def _outliers(t: Columns) -> Regression:
    return Regression({"b_x": t["x"]}, t["y"], "student_t")


def _wine(t: Columns) -> Regression:
    levels = ["bad", "fair", "good", "best"]
    x = {"b_temp[warm]": t["temp"] == "warm", "b_contact": t["contact"]}
    return Regression(x, np.array([levels.index(v) for v in t["rating"]]), "ordinal", 2.0, levels=levels)


def _penguins(t: Columns) -> Regression:
    levels = ["Adelie", "Chinstrap", "Gentoo"]
    codes = np.array([levels.index(v) for v in t["species"]])
    return Regression({"b_bill": t["bill"], "b_mass": t["mass"]}, codes, "categorical", 2.0, (0.0, 5.0), levels=levels)


def _radon(t: Columns) -> Regression:
    y = t["log_radon"]
    return Regression({"b_floor": t["floor"]}, y, "normal", groups=[groups("county", t["county"], y.std())])


def _sleepstudy(t: Columns) -> Regression:
    y = t["reaction"]
    return Regression({"b_days": t["days"]}, y, "normal", groups=[groups("subject", t["subject"], y.std(), days=t["days"])])  # fmt: skip


def _pilots(t: Columns) -> Regression:
    y = t["recovered"]
    return Regression({}, y, "normal", groups=[groups(name, t[name], y.std()) for name in ("group", "scenario")])


def _epilepsy(t: Columns) -> Regression:
    x = {"b_treated": t["treated"], "b_visit": t["visit"]}
    return Regression(x, t["seizures"], "poisson", groups=[groups("patient", t["patient"])])


def _election(t: Columns) -> Regression:
    own = [groups(name, t[name]) for name in ("state", "school")]
    return Regression({"b_black": t["black"]}, t["bush"], "bernoulli", groups=own)


def _dugongs(t: Columns) -> Callable[[], None]:
    def model() -> None:
        top, gap = numpyro.sample("top", dist.Normal(2.5, 1)), numpyro.sample("gap", dist.HalfNormal(2))
        z = numpyro.sample("z", dist.Logistic(0, 1))
        _, sigma = numpyro.deterministic("rate", expit(z)), numpyro.sample("sigma", dist.HalfNormal(1))
        numpyro.sample("y", dist.Normal(top - gap * jnp.exp(t["age"] * jax.nn.log_sigmoid(z)), sigma), obs=t["length"])

    return model


def _lynx(t: Columns) -> Callable[[], None]:
    def model() -> None:
        level, noise = numpyro.sample("level", dist.Normal(0, 2)), numpyro.sample("noise", dist.HalfNormal(2))
        one, two = (numpyro.sample(f"lags[{i}]", dist.Normal(0, 1)) for i in range(2))
        y = t["y"]
        numpyro.sample("y", dist.Normal(level + one * y[1:-1] + two * y[:-2], noise), obs=y[2:])

    return model


def _schools(t: Columns) -> Callable[[], None]:
    def model() -> None:
        mean, spread = numpyro.sample("mean", dist.Normal(0, 5)), numpyro.sample("spread", dist.HalfCauchy(5))
        z = numpyro.sample("z", dist.Normal(0, 1).expand((8,)))
        for name, value in zip(t["school"], z, strict=True):
            numpyro.deterministic(f"standardised[{name}]", value)
        numpyro.sample("y", dist.Normal(mean + spread * z, t["error"]), obs=t["effect"])

    return model


MODELS: dict[str, Callable[[Columns], Callable[[], None]]] = {
    "wells": _wells, "nes": _nes, "roaches": _roaches, "peregrine": _peregrine, "breeding success": _success, "claims": _claims,
    "outliers": _outliers, "wine": _wine, "penguins": _penguins, "radon": _radon, "sleepstudy": _sleepstudy, "pilots": _pilots,
    "epilepsy": _epilepsy, "election": _election, "dugongs": _dugongs, "lynx": _lynx, "eight schools": _schools,
    **{name: functools.partial(functools.partial, model) for name, model in FAMILY_MODELS.items()},
}  # fmt: skip
"""Table -> its model."""

INNER = ("a", "b", "p", "z", "raw", "zi_a", "hu_a", "sigma_a")
"""Sites whose parts are quantities under other names."""
