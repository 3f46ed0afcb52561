"""First examples of PyMC's documentation, written anew, each with data simulated from known values.

Each model is written as its documentation writes it, in a function of the data. `EXAMPLES` says how its data are made, and
what must come back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

Simulated = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Fields of the data, and the values of latents or deterministics from which they were made."""


class Example(NamedTuple):
    """How an example is run.

    Attributes:
        simulate: makes data and truths from a generator.
        options: options of the model.
        blocks: other keys of the experiment.
        refused: part of the message of an example that cannot run; empty if it runs.
        failed: gate that an example fails, though its numbers are right; empty if it passes.
    """

    simulate: Callable[[np.random.Generator], Simulated]
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    blocks: dict[str, Any] = {}  # noqa: RUF012 - never changed
    refused: str = ""
    failed: str = ""


def linear(rows: Any) -> pm.Model:
    with pm.Model() as basic_model:
        alpha = pm.Normal("alpha", mu=0, sigma=10)
        beta = pm.Normal("beta", mu=0, sigma=10, shape=2)
        sigma = pm.HalfNormal("sigma", sigma=1)
        mu = alpha + beta[0] * rows["X1"] + beta[1] * rows["X2"]
        pm.Normal("Y_obs", mu=mu, sigma=sigma, observed=rows["Y"])
    return basic_model


def first(g: np.random.Generator) -> Simulated:
    x1, x2 = g.normal(size=100), g.normal(size=100) * 0.2
    return {"X1": x1, "X2": x2, "Y": g.normal(1 + x1 + 2.5 * x2, 1)}, {"alpha": 1, "beta": [1, 2.5], "sigma": 1}


def eight_schools(data: Any) -> pm.Model:
    with pm.Model(coords={"school": np.arange(len(data["y"]))}) as model:
        mu = pm.Normal("mu", 0, sigma=5)
        tau = pm.HalfCauchy("tau", beta=5)
        eta = pm.Normal("eta", 0, 1, dims="school")
        theta = pm.Deterministic("theta", mu + tau * eta, dims="school")
        pm.Normal("obs", theta, sigma=data["sigma"], observed=data["y"])
    return model


def schools(g: np.random.Generator) -> Simulated:
    theta, sigma = g.normal(4, 6, 12), g.uniform(3, 6, 12)
    return {"y": g.normal(theta, sigma), "sigma": sigma}, {"mu": 4.0, "tau": 6.0, "theta": theta}


def radon(data: Any) -> pm.Model:
    with pm.Model(coords={"county": [f"county {i}" for i in range(12)]}) as model:
        floor_idx = pm.Data("floor_idx", data["floor"], dims="obs_id")
        county_idx = pm.Data("county_idx", data["county"], dims="obs_id")
        mu_a = pm.Normal("mu_a", mu=0.0, sigma=10.0)
        sigma_a = pm.Exponential("sigma_a", 1)
        alpha = pm.Normal("alpha", mu=mu_a, sigma=sigma_a, dims="county")
        beta = pm.Normal("beta", mu=0, sigma=10.0)
        sd_y = pm.Exponential("sd_y", 1)
        pm.Normal("y", mu=alpha[county_idx] + beta * floor_idx, sigma=sd_y, observed=data["y"], dims="obs_id")
    return model


def houses(g: np.random.Generator) -> Simulated:
    county, floor, alpha = np.repeat(np.arange(12), 15), g.integers(0, 2, 180), g.normal(1.5, 0.5, 12)
    data = {"county": county, "floor": floor, "y": g.normal(alpha[county] - 0.7 * floor, 0.8)}
    return data, {"mu_a": 1.5, "sigma_a": 0.5, "beta": -0.7, "sd_y": 0.8, "alpha": alpha}


def logistic(rows: Any) -> pm.Model:
    with pm.Model() as model:
        beta0 = pm.Normal("beta0", 0, 2)
        beta1 = pm.Normal("beta1", 0, 2)
        p = pm.Deterministic("p", pm.math.invlogit(beta0 + beta1 * rows["x"]))
        pm.Bernoulli("y", p=p, observed=rows["y"])
    return model


def answers(g: np.random.Generator) -> Simulated:
    x = g.normal(size=250)
    p = 1 / (1 + np.exp(-(0.5 - 1.2 * x)))
    return {"x": x, "y": (g.random(250) < p).astype(int)}, {"beta0": 0.5, "beta1": -1.2, "p": p}


def robust(rows: Any) -> pm.Model:
    with pm.Model() as model:
        intercept = pm.Normal("intercept", mu=0, sigma=10)
        slope = pm.Normal("slope", mu=0, sigma=10)
        sigma = pm.HalfNormal("sigma", sigma=10)
        nu = pm.Gamma("nu", alpha=2, beta=0.1)
        pm.StudentT("y", mu=intercept + slope * rows["x"], sigma=sigma, nu=nu, observed=rows["y"])
    return model


def outliers(g: np.random.Generator) -> Simulated:
    x = g.uniform(0, 1, 150)
    return {"x": x, "y": 1 + 2 * x + 0.3 * g.standard_t(4, 150)}, {"intercept": 1, "slope": 2, "sigma": 0.3}


def sneezes(rows: Any) -> pm.Model:
    """Counts with an interaction, and a potential on the latents."""
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=4)
        eta = b[0] + b[1] * rows["alcohol"] + b[2] * rows["pills"] + b[3] * rows["alcohol"] * rows["pills"]
        pm.Potential("small", -0.01 * (b**2).sum())
        pm.Poisson("nsneeze", mu=pm.math.exp(eta), observed=rows["nsneeze"])
    return model


def noses(g: np.random.Generator) -> Simulated:
    alcohol, pills, b = g.integers(0, 2, 300), g.integers(0, 2, 300), np.array([0.3, 1.0, 1.5, -0.4])
    mu = np.exp(b[0] + b[1] * alcohol + b[2] * pills + b[3] * alcohol * pills)
    return {"alcohol": alcohol, "pills": pills, "nsneeze": g.poisson(mu)}, {"b": b}


def negative_binomial(rows: Any) -> pm.Model:
    with pm.Model() as model:
        alpha = pm.Exponential("alpha", 0.5)
        level = pm.Normal("level", 0, 2, initval=1.0)
        slope = pm.Normal("slope", 0, 2)
        pm.NegativeBinomial("y", mu=pm.math.exp(level + slope * rows["x"]), alpha=alpha, observed=rows["y"])
    return model


def wide_counts(g: np.random.Generator) -> Simulated:
    x = g.normal(size=250)
    y = g.poisson(np.exp(1 + 0.5 * x) * g.gamma(2.0, 1 / 2.0, 250))
    return {"x": x, "y": y}, {"alpha": 2.0, "level": 1.0, "slope": 0.5}


def gaussian_process(data: Any) -> pm.Model:
    with pm.Model() as model:
        length = pm.Gamma("length", alpha=2, beta=2)
        eta = pm.HalfNormal("eta", sigma=2)
        cov = eta**2 * pm.gp.cov.ExpQuad(1, length)
        gp = pm.gp.Marginal(cov_func=cov)
        sigma = pm.HalfNormal("sigma", sigma=1)
        gp.marginal_likelihood("y", X=data["x"][:, None], y=data["y"], sigma=sigma)
    return model


def curve(g: np.random.Generator) -> Simulated:
    x = np.sort(g.uniform(-3, 3, 40))
    k = 1.5 * np.exp(-0.5 * ((x[:, None] - x) / 0.8) ** 2)
    y = g.multivariate_normal(np.zeros(40), k + 0.04 * np.eye(40))
    return {"x": x, "y": y}, {"eta": np.sqrt(1.5), "length": 0.8, "sigma": 0.2}


def volatility(data: Any) -> pm.Model:
    with pm.Model(coords={"time": np.arange(len(data["returns"]))}) as model:
        step_size = pm.Exponential("step_size", 10)
        # Steps in units of their scale, as the page of a run that is written with the walk itself advises.
        walk = pm.GaussianRandomWalk("walk", sigma=1, init_dist=pm.Normal.dist(0, 1), dims="time")
        vol = pm.Deterministic("volatility", step_size * walk, dims="time")
        nu = pm.Exponential("nu", 0.1)
        pm.StudentT("returns", nu=nu, lam=pt.exp(-2 * vol), observed=data["returns"], dims="time")
    return model


def market(g: np.random.Generator) -> Simulated:
    s = np.cumsum(g.normal(0, 0.1, 300))
    return {"returns": np.exp(s) * g.standard_t(8, 300)}, {"volatility": s}


def rugby(rows: Any) -> pm.Model:
    coords = {"team": ["Wales", "France", "Ireland", "Scotland", "Italy", "England"]}
    with pm.Model(coords=coords) as model:
        home = pm.Normal("home", mu=0, sigma=1)
        intercept = pm.Normal("intercept", mu=3, sigma=1)
        sd_att = pm.HalfNormal("sd_att", sigma=1)
        atts_star = pm.Normal("atts_star", mu=0, sigma=1, dims="team")
        atts = pm.Deterministic("atts", sd_att * (atts_star - pt.mean(atts_star)), dims="team")
        defs = pm.ZeroSumNormal("defs", sigma=0.5, dims="team")
        theta = pt.exp(intercept + home * rows["is_home"] + atts[rows["team"]] + defs[rows["other"]])
        pm.Poisson("points", mu=theta, observed=rows["points"])
    return model


def matches(g: np.random.Generator) -> Simulated:
    atts, defs = np.array([0.3, 0.1, 0.2, -0.2, -0.5, 0.1]), np.array([-0.2, 0.1, -0.1, 0.1, 0.3, -0.2])
    team, other, is_home = g.integers(0, 6, 240), g.integers(0, 6, 240), g.integers(0, 2, 240)
    mu = np.exp(2.5 + 0.2 * is_home + atts[team] + defs[other])
    data = {"team": team, "other": other, "is_home": is_home, "points": g.poisson(mu)}
    return data, {"home": 0.2, "intercept": 2.5, "atts": atts, "defs": defs}


def censored(rows: Any) -> pm.Model:
    with pm.Model() as model:
        mu = pm.Normal("mu", mu=0, sigma=5)
        sigma = pm.HalfNormal("sigma", sigma=5)
        pm.Censored("y", pm.Normal.dist(mu, sigma), lower=None, upper=2.0, observed=rows["y"])
    return model


def limits(g: np.random.Generator) -> Simulated:
    return {"y": np.minimum(g.normal(1.2, 1.0, 300), 2.0)}, {"mu": 1.2, "sigma": 1.0}


def missing(data: Any) -> pm.Model:
    """Values that are missing are drawn with the latents."""
    with pm.Model() as model:
        mean = pm.Normal("mean", 0, 2)
        x = pm.Normal("x", mean, 1.0, observed=np.ma.masked_less(data["x"], -900))
        slope = pm.Normal("slope", 0, 2)
        pm.Normal("y", slope * x, 0.5, observed=data["y"])
    return model


def gaps(g: np.random.Generator) -> Simulated:
    x = g.normal(0.7, 1, 120)
    y = g.normal(1.5 * x, 0.5)
    return {"x": np.where(np.arange(120) % 12 == 0, -999.0, x), "y": y}, {"mean": 0.7, "slope": 1.5, "x": x}


def mixture(rows: Any) -> pm.Model:
    with pm.Model() as model:
        mu = pm.Normal("mu", mu=0, sigma=5, transform=pm.distributions.transforms.ordered, initval=[-2.0, 2.0], shape=2)
        sigma = pm.HalfNormal("sigma", sigma=1)
        weights = pm.Dirichlet("w", np.ones(2))
        pm.NormalMixture("x", w=weights, mu=mu, sigma=sigma, observed=rows["x"])
    return model


def clusters(g: np.random.Generator) -> Simulated:
    is_second = g.random(200) < 0.4
    return {"x": g.normal(np.where(is_second, 3.0, -1.0), 0.7)}, {"w": [0.6, 0.4], "mu": [-1, 3], "sigma": 0.7}


def cafes(data: Any) -> pm.Model:
    """Levels and slopes that are correlated."""
    with pm.Model(coords={"cafe": np.arange(20)}) as model:
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1.0))
        ab = pm.Normal("ab", 0, 3, shape=2)
        z = pm.Normal("z", 0, 1, shape=(20, 2))
        ab_cafe = pm.Deterministic("ab_cafe", ab + pt.dot(z, chol.T))
        mu = ab_cafe[data["cafe"], 0] + ab_cafe[data["cafe"], 1] * data["afternoon"]
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("wait", mu, sigma, observed=data["wait"])
    return model


def waits(g: np.random.Generator) -> Simulated:
    effects = g.multivariate_normal([3.5, -1], [[1.0, -0.35], [-0.35, 0.25]], 20)
    cafe, afternoon = np.repeat(np.arange(20), 12), np.tile([0, 1], 120)
    wait = g.normal(effects[cafe, 0] + effects[cafe, 1] * afternoon, 0.5)
    return {"cafe": cafe, "afternoon": afternoon, "wait": wait}, {"ab": [3.5, -1], "ab_cafe": effects, "sigma": 0.5}


def interpolation(rows: Any) -> pm.Model:
    """A density of one's own, and data as mutable variables."""
    knots = pm.math.stack([rows["x"], rows["x"] ** 2], axis=1)
    with pm.Model() as model:
        b = pm.Laplace("b", 0, 1, shape=2)
        scale = pm.InverseGamma("scale", 3, 1)

        def logp(value: Any, mu: Any, s: Any) -> Any:
            return -pt.log(2 * s) - pt.abs(value - mu) / s

        pm.CustomDist("y", pt.dot(knots, b), scale, logp=logp, observed=rows["y"])
    return model


def absolute(g: np.random.Generator) -> Simulated:
    x = g.uniform(-1, 1, 250)
    return {"x": x, "y": g.laplace(1.0 * x - 0.5 * x**2, 0.4)}, {"b": [1.0, -0.5], "scale": 0.4}


def coal(rows: Any) -> pm.Model:
    """The switchpoint is a whole number."""
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switchpoint", lower=0, upper=100)
        rate = pm.Exponential("rate", 1.0, shape=2)
        pm.Poisson("disasters", pm.math.switch(switch >= rows["year"], rate[0], rate[1]), observed=rows["count"])
    return model


def disasters(g: np.random.Generator) -> Simulated:
    return {"year": np.arange(100), "count": g.poisson(np.where(np.arange(100) < 40, 3, 1))}, {}


def zero_inflated(rows: Any) -> pm.Model:
    with pm.Model() as model:
        psi = pm.Beta("psi", 1, 1)
        b = pm.Normal("b", 0, 1.5, shape=2)
        pm.ZeroInflatedPoisson("count", psi=psi, mu=pm.math.exp(b[0] + b[1] * rows["x"]), observed=rows["count"])
    return model


def catches(g: np.random.Generator) -> Simulated:
    x = g.normal(size=250)
    count = np.where(g.random(250) < 0.3, 0, g.poisson(np.exp(1 + 0.4 * x)))
    return {"x": x, "count": count}, {"psi": 0.7, "b": [1.0, 0.4]}


ARRAYS = {"given": "arrays"}
EXAMPLES = {
    "linear": Example(first),
    "eight_schools": Example(schools, ARRAYS),
    "radon": Example(houses, ARRAYS),
    "logistic": Example(answers),
    "robust": Example(outliers),
    "sneezes": Example(noses),
    "negative_binomial": Example(wide_counts),
    "gaussian_process": Example(curve, ARRAYS),
    "volatility": Example(market, ARRAYS),
    "rugby": Example(
        matches, blocks={"kernel": {"name": "nuts", "target_acceptance": 0.99}, "draws": 1500, "warmup": 1000}
    ),
    "censored": Example(limits),
    "missing": Example(gaps, ARRAYS),
    "mixture": Example(clusters),
    "cafes": Example(waits, ARRAYS),
    "interpolation": Example(absolute),
    "zero_inflated": Example(catches),
    "coal": Example(disasters, refused="sum discrete variables out"),
}
"""Name of the function -> how it is run."""
