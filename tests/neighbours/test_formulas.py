"""Formulas as the first examples of Bambi's and of brms's documentation have them, for simulated tables of known truth.

`make test` samples one of each package, `make nightly` all. A formula that is written otherwise here is answered with the text.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from arviz_stats.base import array_stats

import programs
from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.errors import ConfigError
from bayesmesh.models.glm.formula import parse_formula
from posteriors.judging import run
from tabular.runs import case_of, named_draws
from tabular.simulated import Table

NUM_ROWS, NUM_GROUPS = 400, 30


class Example(NamedTuple):
    """A formula with its family and the truth behind its table; `idiom` is how the package writes it, if that differs."""

    formula: str
    family: str
    truth: Mapping[str, float]
    idiom: str = ""
    instead: str = ""
    model: Mapping[str, Any] = {}
    source: Mapping[str, Any] = {}


BAMBI = {
    "one predictor": Example("y ~ x", "normal", {"1": 2.0, "x": -1.5, "sigma": 0.7}),
    "several predictors": Example("y ~ x + z + w", "normal", {"1": 1.0, "x": 0.5, "z": -0.4, "w": 0.8, "sigma": 1.0}),
    "sleep": Example("y ~ x + (1 + x | g)", "normal", {"1": 3.0, "x": 1.0, "sigma": 0.5, "sd_g[intercept]": 1.2, "sd_g[x]": 0.6}),
    "radon": Example("y ~ 1 + x + (1 | g)", "normal", {"1": 1.5, "x": -0.7, "sigma": 0.8, "sd_g[intercept]": 0.5}),
    "robust": Example("y ~ x", "student_t", {"1": 1.0, "x": 2.0, "sigma": 0.5}),
    "votes": Example("y ~ k + k:x", "bernoulli", {"1": 0.2, "k[b]": 0.8, "k[c]": -0.6}),
    "beetles": Example("y ~ x", "binomial", {"1": -0.5, "x": 1.2}, "p(y, n) ~ x", "trials: n", {"trials": "n"}),
    "categories": Example("y ~ c", "normal", {"1": 1.0, "c[2]": 0.7, "c[3]": -0.5, "sigma": 0.6}, "y ~ C(c)", "types: {c: category}", {}, {"types": {"c": "category"}}),
    "counts": Example("y ~ x + k", "poisson", {"1": 1.0, "x": 0.4, "k[b]": 0.5, "k[c]": -0.3}),
    "absences": Example("y ~ 0 + k + x", "negative_binomial", {"k[a]": 1.5, "k[b]": 1.0, "k[c]": 2.0, "x": 0.4, "shape": 2.0}, "y ~ 0 + k + scale(x)", "standardise: [x]"),
    "costs": Example("y ~ x", "gamma", {"1": 1.0, "x": -0.5, "shape": 3.0}),
    "interaction": Example("y ~ x * z", "normal", {"1": 0.5, "x": 1.0, "z": -1.0, "x:z": 0.7, "sigma": 0.5}),
    "polynomial": Example("", "normal", {}, "y ~ poly(x, 2)", "I(x^2)"),
    "cherry blossoms": Example("", "normal", {}, "y ~ bs(x, df=5)", "no smooth terms"),
}  # fmt: skip

BRMS = {
    "epilepsy": Example("y ~ x + z * k + (1 | g)", "poisson", {"x": 0.3, "z": 0.5, "sd_g[intercept]": 0.6}),
    "kidney": Example("", "normal", {}, "y | cens(w) ~ x + (1 | g)", "censored: w"),
    "inhaler": Example("y ~ x + z + (1 | g)", "ordinal", {"x": 1.0, "z": -0.7, "sd_g[intercept]": 0.8}),
    "loss": Example("", "normal", {}, "bf(y ~ x, sigma ~ z)", "the formula alone"),
    "trials": Example("y ~ k", "binomial", {"1": -0.4, "k[b]": 1.0, "k[c]": 0.5}, "y | trials(n) ~ k", "trials: n", {"trials": "n"}),
    "smooth": Example("", "normal", {}, "y ~ s(x) + z", "no smooth terms"),
    "income": Example("", "normal", {}, "y ~ mo(k)", "no monotonic effects"),
    "exposure": Example("y ~ x", "poisson", {"1": -0.5, "x": 0.6}, "y ~ x + offset(log(time))", "exposure: time", {"exposure": "time"}),
    "no correlation": Example("y ~ x + (x || g)", "normal", {"1": 1.0, "x": 0.5, "sigma": 0.5, "sd_g[intercept]": 0.9, "sd_g[x]": 0.7}),
    "outliers": Example("y ~ x + (1 | g)", "student_t", {"1": 0.0, "x": 1.0, "sigma": 0.5, "sd_g[intercept]": 1.0}),
    "overdispersed": Example("y ~ x + z", "negative_binomial", {"1": 1.2, "x": 0.5, "z": -0.3, "shape": 1.5}),
    "groups alone": Example("y ~ 1 + (1 | g)", "normal", {"1": 2.0, "sigma": 1.0, "sd_g[intercept]": 1.5}, "y ~ 1 + (1 | gr(g))", "(1 | g)"),
    "multilevel logit": Example("y ~ x + (1 | g)", "bernoulli", {"1": 0.3, "x": 1.0, "sd_g[intercept]": 0.8}),
    "log": Example("y ~ log(time)", "normal", {"1": 1.0, "log(time)": 0.8, "sigma": 0.5}, "y ~ ln(time)", "log(time)"),
}  # fmt: skip

EXAMPLES = {f"Bambi, {k}": each for k, each in BAMBI.items()} | {f"brms, {k}": each for k, each in BRMS.items()}
ALWAYS = ("Bambi, beetles", "brms, trials")
SAMPLED = [name for name, each in EXAMPLES.items() if each.formula and ("BAYESMESH_NIGHTLY" in os.environ or name in ALWAYS)]  # fmt: skip

OUTCOMES: Mapping[str, Callable[..., np.ndarray]] = {
    "normal": lambda r, eta, truth, n: eta + r.normal(0, truth["sigma"], len(eta)),
    "student_t": lambda r, eta, truth, n: eta + truth["sigma"] * r.standard_t(4, len(eta)),
    "bernoulli": lambda r, eta, truth, n: (r.uniform(size=len(eta)) < 1 / (1 + np.exp(-eta))).astype(int),
    "binomial": lambda r, eta, truth, n: r.binomial(n, 1 / (1 + np.exp(-eta))),
    "poisson": lambda r, eta, truth, n: r.poisson(np.exp(eta)),
    "negative_binomial": lambda r, eta, truth, n: r.poisson(r.gamma(truth["shape"], np.exp(eta) / truth["shape"])),
    "gamma": lambda r, eta, truth, n: r.gamma(truth["shape"], np.exp(eta) / truth["shape"]) + 1e-12,
    "ordinal": lambda r, eta, truth, n: np.array(["low", "mid", "high"])[np.digitize(eta + r.logistic(size=len(eta)), [-1, 1])],
}  # fmt: skip


def simulate(name: str) -> dict[str, np.ndarray]:
    """Return a table whose outcome has the truth of an example."""
    example, r = EXAMPLES[name], np.random.default_rng(zlib.crc32(name.encode()))
    x, z, w = r.normal(size=(3, NUM_ROWS))
    k, c, g = r.choice(list("abc"), NUM_ROWS), r.integers(1, 4, NUM_ROWS), r.integers(0, NUM_GROUPS, NUM_ROWS)
    time, n = r.uniform(0.5, 8, NUM_ROWS), r.integers(5, 20, NUM_ROWS)
    columns = {"x": x, "z": z, "w": w, "k": k, "c": c, "time": time, "n": n, "g": np.array([f"g{i}" for i in g])}
    design = {"1": np.ones(NUM_ROWS), "x": x, "z": z, "w": w, "x:z": x * z, "log(time)": np.log(time)}
    design |= {f"k[{each}]": k == each for each in "abc"} | {f"c[{each}]": c == each for each in (2, 3)}
    eta = sum(value * design[key] for key, value in example.truth.items() if key in design)
    eta = eta + (np.log(time) if "exposure" in example.model else 0)
    for key, of in (("sd_g[intercept]", 1.0), ("sd_g[x]", x)):
        effects = r.normal(size=NUM_GROUPS)
        eta = eta + example.truth.get(key, 0.0) * ((effects - effects.mean()) / effects.std())[g] * of
    return {**columns, "y": OUTCOMES[example.family](r, eta, example.truth, n)}


@pytest.mark.parametrize("name", [name for name, each in EXAMPLES.items() if each.idiom])
def test_an_idiom_of_the_package_is_answered_with_what_to_write(name: str) -> None:
    columns = [*"yxzwkcng", "time"]
    with pytest.raises(ConfigError) as caught:
        parse_formula(EXAMPLES[name].idiom, columns)
    assert EXAMPLES[name].instead in caught.value.remedy


@pytest.mark.parametrize("name", SAMPLED)
def test_the_posterior_holds_the_truth(name: str, tmp_path: Path) -> None:
    example, columns = EXAMPLES[name], simulate(name)
    source = {**example.source, **({"levels": {"y": ["low", "mid", "high"]}} if example.family == "ordinal" else {})}
    options = {"formula": example.formula, "family": example.family, **example.model}
    case = case_of(name, Table(lambda _: columns, "glm", options, source), columns, tmp_path)
    built = programs.build(
        case,
        "nuts",
        num_chains=4,
        num_warmup=400,
        most_draws=400,
        row_tile=case.spec.num_rows,
        initial=SamplingSettings().initial.model_dump(),
    )
    done = run(built, 400, 3)
    draws = named_draws(case, done.draws)
    assert np.mean(np.asarray(done.statistics["diverging"])) < 0.01
    for key, value in example.truth.items():
        found = draws[{"1": "intercept_at_zero"}.get(key, key if key in draws else f"b_{key}")]
        found = np.ascontiguousarray(found, np.float64)
        assert abs(found.mean() - value) < 4 * found.std(), (key, found.mean(), found.std())
        assert array_stats.rhat(found) < 1.05
