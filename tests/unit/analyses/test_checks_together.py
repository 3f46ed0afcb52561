"""Predictive checks and LOO-PIT together flag a wrong model, whose first advice is right, in at least 17 of 20 seeded repeats, and a right one in at most 1.

Posteriors are conjugate, or normal at the mode with many rows, so that draws cost nothing. `make nightly` runs all
repeats, the suite one of each case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special, stats

from bayesmesh.analyses.loo.leave_one_out import leave_one_out
from bayesmesh.analyses.loo.section import fit_checks, share_inside
from bayesmesh.analyses.loo.sums import summarise
from bayesmesh.analyses.predictive_checks.columns import bin_levels, bin_numbers, list_terms
from bayesmesh.analyses.predictive_checks.outcomes import COLUMNS, propose_all
from bayesmesh.analyses.predictive_checks.quantities import Kind, p_value, quantities_of, sum_powers
from bayesmesh.analyses.predictive_checks.residuals import Residuals
from bayesmesh.analyses.predictive_checks.section import fit_check
from bayesmesh.config.declarations import declared
from bayesmesh.models.glm.families.base import family_of
from bayesmesh.report.fit_mark import FitMark, mark_fit
from bayesmesh.store.posterior.description import ModelDescription
from bayesmesh.store.scores import RowScores

IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
NUM_REPEATS, NUM_WRONG_FLAGGED, NUM_RIGHT_FLAGGED = (20, 17, 1) if IS_NIGHTLY else (1, 1, 0)
NUM_ROWS, NUM_DRAWS, NUM_CHAINS = 300, 3000, 4

Columns = dict[str, np.ndarray]


class Fitted(NamedTuple):
    """Outcomes simulated from the posterior, and log likelihoods of the observed ones, (draw, row); None for classes."""

    simulated: np.ndarray
    log_likelihood: np.ndarray | None


Fit = Callable[[np.ndarray, Columns, np.random.Generator], Fitted]
Simulate = Callable[[np.random.Generator], tuple[np.ndarray, Columns]]


def fit_linear(y: np.ndarray, columns: Columns, generator: np.random.Generator) -> Fitted:
    """A straight line along ``x``, noise of one scale, flat priors; without ``x`` a constant."""
    design = np.column_stack([np.ones(len(y)), *([columns["x"]] if "x" in columns else [])])
    covariance = np.linalg.inv(design.T @ design)
    centre = covariance @ design.T @ y
    free = len(y) - design.shape[1]
    variance = np.square(y - design @ centre).sum() / generator.chisquare(free, NUM_DRAWS)
    factor = np.linalg.cholesky(covariance)
    draws = centre + np.sqrt(variance)[:, None] * (generator.standard_normal((NUM_DRAWS, design.shape[1])) @ factor.T)
    mean, scale = draws @ design.T, np.sqrt(variance)[:, None]
    return Fitted(mean + scale * generator.standard_normal(mean.shape), stats.norm.logpdf(y, mean, scale))


def fit_poisson(y: np.ndarray, columns: Columns, generator: np.random.Generator) -> Fitted:
    """One rate."""
    rate = generator.gamma(y.sum() + 0.5, 1 / len(y), (NUM_DRAWS, 1))
    return Fitted(generator.poisson(rate, (NUM_DRAWS, len(y))), stats.poisson.logpmf(y, rate))


def fit_negative_binomial(y: np.ndarray, columns: Columns, generator: np.random.Generator) -> Fitted:
    """One mean and one shape; draws of the normal at the mode of their logs."""
    best = optimize.minimize(
        lambda at: -stats.nbinom.logpmf(y, np.exp(at[1]), special.expit(at[1] - at[0])).sum(), [1, 0]
    )
    mean, shape = generator.multivariate_normal(best.x, best.hess_inv, NUM_DRAWS).T[:, :, None]
    p = special.expit(shape - mean)
    simulated = generator.negative_binomial(np.exp(shape), p, (NUM_DRAWS, len(y)))
    return Fitted(simulated, stats.nbinom.logpmf(y, np.exp(shape), p))


def fit_logistic(y: np.ndarray, columns: Columns, generator: np.random.Generator) -> Fitted:
    """Log odds along a line in ``x``; draws of the normal at the mode."""
    design = np.column_stack([np.ones(len(y)), columns["x"]])
    at = np.zeros(2)
    for _ in range(25):
        p = 1 / (1 + np.exp(-design @ at))
        information = design.T @ (design * (p * (1 - p))[:, None]) + 0.01 * np.eye(2)
        at = at + np.linalg.solve(information, design.T @ (y - p) - 0.01 * at)
    draws = generator.multivariate_normal(at, np.linalg.inv(information), NUM_DRAWS)
    p = 1 / (1 + np.exp(-draws @ design.T))
    return Fitted((generator.random(p.shape) < p).astype(np.int64), None)


def fit_shares(y: np.ndarray, columns: Columns, generator: np.random.Generator) -> Fitted:
    """Three classes with the same probabilities in all rows."""
    shares = generator.dirichlet(np.bincount(y, minlength=3) + 1, NUM_DRAWS)
    simulated = (generator.random((NUM_DRAWS, len(y), 1)) > np.cumsum(shares, axis=1)[:, None, :2]).sum(axis=2)
    return Fitted(simulated, None)


def line(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return 1 + 0.5 * x + generator.standard_normal(NUM_ROWS), {"x": x}


def curve(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    y, columns = line(generator)
    return y + 0.4 * columns["x"] ** 2, columns


def fan(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return 1 + 0.5 * x + np.exp(0.4 * x) * generator.standard_normal(NUM_ROWS), {"x": x}


def wide_fan(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return 50 + 2 * x + np.exp(0.8 * x) * generator.standard_normal(NUM_ROWS), {"x": x}


def log_normal(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return np.exp(1 + 0.8 * x + 0.7 * generator.standard_normal(NUM_ROWS)), {"x": x}


def counts_along_x(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return generator.poisson(np.exp(0.3 + 0.8 * x)), {"x": x}


def zero_one_along_x(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return generator.binomial(1, special.expit(2 * x - 1)), {"x": x}


def groups(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    """Columns that the model does not read: a predictor without effect, and groups with one."""
    y, columns = line(generator)
    site = generator.integers(0, 20, NUM_ROWS).astype(np.int32)
    return y + 0.7 * generator.standard_normal(20)[site], columns | {
        "z": generator.standard_normal(NUM_ROWS),
        "site": site,
    }


def right_groups(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    y, columns = line(generator)
    more = {"z": generator.standard_normal(NUM_ROWS), "site": generator.integers(0, 20, NUM_ROWS).astype(np.int32)}
    return y, columns | more


def predictor(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    y, columns = right_groups(generator)
    return y + 0.4 * columns["z"], columns


def interaction(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    y, columns = right_groups(generator)
    return y + 0.5 * columns["x"] * columns["z"], columns


def counts(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.poisson(3, NUM_ROWS), {}


def dispersed(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.negative_binomial(4, 4 / 7, NUM_ROWS), {}


def zeros(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.poisson(3, NUM_ROWS) * (generator.random(NUM_ROWS) > 0.15), {}


def mostly_zeros(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.poisson(9, NUM_ROWS) * (generator.random(NUM_ROWS) > 0.35), {}


def bounded(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.binomial(8, 0.6, NUM_ROWS), {}


def zero_one(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.binomial(1, 0.4, NUM_ROWS), {}


def tails(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.standard_t(3, NUM_ROWS), {}


def skewed(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.gamma(4, 1, NUM_ROWS), {}


def normal(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.normal(2, 3, NUM_ROWS), {}


def logits(generator: np.random.Generator, bend: float = 0.0) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    p = 1 / (1 + np.exp(-(x + bend * (x**2 - 1))))
    return (generator.random(NUM_ROWS) < p).astype(np.int32), {"x": x}


def bent_logits(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return logits(generator, 0.8)


def classes(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.choice(3, NUM_ROWS, p=[0.5, 0.3, 0.2]).astype(np.int32), {"x": generator.standard_normal(NUM_ROWS)}


def classes_along_x(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    x = generator.standard_normal(NUM_ROWS)
    return np.clip(np.round(1 + 0.7 * x + 0.7 * generator.standard_normal(NUM_ROWS)), 0, 2).astype(np.int32), {"x": x}


class Case(NamedTuple):
    """A model, data that it fits, data that it does not fit, and the first advice on these, as a pattern."""

    family: str
    formula: str
    fit: Fit
    right: Simulate
    wrong: Simulate
    advice: str


CASES = {
    "heavy tails": Case("normal", "y ~ 1", fit_linear, normal, tails, "family: student_t"),
    "skewness": Case("normal", "y ~ 1", fit_linear, normal, skewed, r"`log\(y\)`"),
    "overdispersion": Case("poisson", "y ~ 1", fit_poisson, counts, dispersed, "family: negative_binomial"),
    "underdispersion": Case("poisson", "y ~ 1", fit_poisson, counts, bounded, "family: binomial"),
    "0 and 1": Case("poisson", "y ~ 1", fit_poisson, counts, zero_one, "family: bernoulli"),
    "zeros": Case("poisson", "y ~ 1", fit_poisson, counts, zeros, "family: negative_binomial"),
    "two kinds of zeros": Case("negative_binomial", "y ~ 1", fit_negative_binomial, dispersed, mostly_zeros, "zero_inflated_negative_binomial"),
    "nonlinearity": Case("normal", "y ~ x", fit_linear, line, curve, r"Add `I\(x\^2\)`"),
    "spread that changes": Case("normal", "y ~ x", fit_linear, line, fan, "Give `sigma` a predictor|student_t"),
    "spread that changes much": Case("normal", "y ~ x", fit_linear, line, wide_fan, "Give `sigma` a predictor"),
    "positive outcomes along a line": Case("normal", "y ~ x", fit_linear, line, log_normal, r"`log\(y\)`"),
    "counts along a line": Case("normal", "y ~ x", fit_linear, line, counts_along_x, "family: negative_binomial"),
    "0 and 1 along a line": Case("normal", "y ~ x", fit_linear, line, zero_one_along_x, "family: bernoulli"),
    "groups": Case("normal", "y ~ x", fit_linear, right_groups, groups, r"Add `\(1 \| site\)`"),
    "a predictor": Case("normal", "y ~ x", fit_linear, right_groups, predictor, "Add `z`"),
    "an interaction": Case("normal", "y ~ x + z", fit_linear, right_groups, interaction, "Add `x:z`"),
    "calibration of 0 and 1": Case("bernoulli", "y ~ x", fit_logistic, logits, bent_logits, r"Add `I\(x\^2\)`"),
    "classes": Case("categorical", "y ~ 1", fit_shares, classes, classes_along_x, "Add `x`"),
}  # fmt: skip

KINDS: dict[str, Kind] = {
    "normal": "real",
    "poisson": "whole",
    "negative_binomial": "whole",
    "bernoulli": "binary",
    "categorical": "class",
}


def criticise(case: Case, y: np.ndarray, columns: Columns, generator: np.random.Generator) -> FitMark:
    """Return what the page says of a model, from both analyses, with the levels of their own."""
    kind, found = KINDS[case.family], case.fit(y, columns, generator)
    made = [
        bin_levels(name, values, ("",) * 20) if values.dtype.kind == "i" else bin_numbers(name, values)
        for name, values in columns.items()
    ]
    variables = [each for each in made if each is not None]
    terms = list_terms(variables, case.formula)
    residuals = Residuals(kind, variables, found.simulated[:, ::5], 3, terms)
    for start in range(0, len(y), 120):  # in blocks, as an analysis reads them
        residuals.add(y[start : start + 120], found.simulated[:, start : start + 120], start)
    upper, largest_for = residuals.quantities()
    every = np.concatenate([y[None], found.simulated]).astype(float)
    if kind == "class":
        values = {f"share of class {code}": (every == code).mean(axis=1) for code in range(3)}
    else:
        about = (float(y.mean()), float(y.std()))
        values = quantities_of(sum_powers(every, *about), kind, *about)
    proposed = propose_all(values, largest_for, variables, case.formula, y)
    rows = [
        [name, each[0], each[1:].mean(), *np.quantile(each[1:], (0.025, 0.975)), p_value(each[1:], each[0], is_upper=name in upper), largest_for.get(name, ""), proposed.get(name, "")]
        for name, each in (values | upper).items()
    ]  # fmt: skip
    checks = [fit_check(pd.DataFrame(rows, columns=COLUMNS))]
    if found.log_likelihood is not None:
        ties = generator.random(len(y))
        below = np.where(found.simulated == y, ties, found.simulated < y).astype(np.float32)
        by_chain = [v[::3].T.reshape(len(y), NUM_CHAINS, -1) for v in (found.log_likelihood, below)]
        statistics, _ = leave_one_out(*by_chain)
        pit = np.clip(statistics[4], 0, 1)
        scores = RowScores(statistics[0], "", False, NUM_DRAWS // 3, *statistics[1:4], pit)
        checks += fit_checks(summarise(scores, None), (), share_inside(scores))
    own = {"bias": "", **family_of(case.family).remedies}
    return mark_fit(checks, [declared("loo"), declared("predictive_checks")], ModelDescription(remedies=own))


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_model_gets_the_right_advice_and_a_right_one_none(name: str) -> None:
    case, num_right, num_wrong = CASES[name], 0, 0
    for repeat in range(NUM_REPEATS):
        generator = np.random.default_rng([17, repeat])
        num_right += criticise(case, *case.right(generator), generator).state == "fail"
        generator = np.random.default_rng([17, repeat])
        mark = criticise(case, *case.wrong(generator), generator)
        num_wrong += mark.state == "fail" and re.search(case.advice, mark.remedies[0]) is not None
    print(f"{name}: right ones flagged {num_right}, wrong ones with the right advice {num_wrong} of {NUM_REPEATS}")
    assert num_wrong >= NUM_WRONG_FLAGGED
    assert num_right <= NUM_RIGHT_FLAGGED
