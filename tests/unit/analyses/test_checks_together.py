"""Predictive checks and LOO-PIT together flag a wrong model in at least 18 of 20 seeded repeats, and a right one in at most 2.

Posteriors are conjugate, or normal at the mode with many rows, so that draws cost nothing. `make nightly` runs all
repeats, the suite one of each case.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.loo.leave_one_out import leave_one_out
from bayesmesh.analyses.loo.section import LEVEL as LEVEL_OF_PIT
from bayesmesh.analyses.predictive_checks.predictive_bins import Variable, bin_levels, bin_numbers
from bayesmesh.analyses.predictive_checks.predictive_quantities import LEVEL, Kind, p_value, quantities_of, sum_powers
from bayesmesh.analyses.predictive_checks.predictive_residuals import Residuals
from bayesmesh.diagnostics.uniformity_diagnostic import assess_uniformity

IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
NUM_REPEATS, NUM_WRONG_FLAGGED, NUM_RIGHT_FLAGGED = (20, 18, 2) if IS_NIGHTLY else (1, 1, 0)
NUM_ROWS, NUM_DRAWS, NUM_CHAINS = 300, 1000, 4

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


def counts(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.poisson(3, NUM_ROWS), {}


def dispersed(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.negative_binomial(4, 4 / 7, NUM_ROWS), {}


def zeros(generator: np.random.Generator) -> tuple[np.ndarray, Columns]:
    return generator.poisson(3, NUM_ROWS) * (generator.random(NUM_ROWS) > 0.15), {}


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


CASES: dict[str, tuple[Kind, Fit, Simulate, Simulate]] = {
    "heavy tails": ("real", fit_linear, normal, tails),
    "skewness": ("real", fit_linear, normal, skewed),
    "overdispersion": ("whole", fit_poisson, counts, dispersed),
    "zeros": ("whole", fit_poisson, counts, zeros),
    "nonlinearity": ("real", fit_linear, line, curve),
    "spread that changes": ("real", fit_linear, line, fan),
    "groups": ("real", fit_linear, right_groups, groups),
    "a predictor": ("real", fit_linear, right_groups, predictor),
    "calibration of 0 and 1": ("binary", fit_logistic, logits, bent_logits),
    "classes": ("class", fit_shares, classes, classes_along_x),
}  # fmt: skip


def is_flagged(kind: Kind, y: np.ndarray, columns: Columns, fit: Fit, generator: np.random.Generator) -> bool:
    """Whether either analysis says that the model is wrong, with the levels of their pages."""
    found = fit(y, columns, generator)
    made: list[Variable | None] = [
        bin_levels(name, values, ()) if values.dtype.kind == "i" else bin_numbers(name, values)
        for name, values in columns.items()
    ]
    residuals = Residuals(kind, [each for each in made if each is not None], found.simulated[:, ::5], 3)
    for start in range(0, len(y), 120):  # in blocks, as an analysis reads them
        residuals.add(y[start : start + 120], found.simulated[:, start : start + 120], start)
    upper, _ = residuals.quantities()
    every = np.concatenate([y[None], found.simulated]).astype(float)
    if kind == "class":
        values = {f"class {code}": (every == code).mean(axis=1) for code in range(3)}
    else:
        about = (float(y.mean()), float(y.std()))
        values = quantities_of(sum_powers(every, *about), kind, *about)
    p_values = [p_value(each[1:], each[0]) for each in values.values()]
    p_values += [p_value(each[1:], each[0], is_upper=True) for each in upper.values()]
    if min(p_values) < LEVEL / len(p_values):
        return True
    if found.log_likelihood is None:
        return False
    ties = generator.random(len(y))
    below = np.where(found.simulated == y, ties, found.simulated < y).astype(np.float32)
    by_chain = [v.T.reshape(len(y), NUM_CHAINS, -1) for v in (found.log_likelihood, below)]
    pit = leave_one_out(*by_chain)[4]
    return bool(assess_uniformity(np.clip(pit, 0, 1)).p_value < LEVEL_OF_PIT)


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_model_is_flagged_and_a_right_one_is_not(case: str) -> None:
    kind, fit, *simulators = CASES[case]
    flagged = [0, 0]
    for repeat in range(NUM_REPEATS):
        for which, simulate in enumerate(simulators):
            generator = np.random.default_rng([17, repeat])
            flagged[which] += is_flagged(kind, *simulate(generator), fit, generator)
    print(f"{case}: right {flagged[0]}, wrong {flagged[1]} of {NUM_REPEATS}")
    assert flagged[1] >= NUM_WRONG_FLAGGED
    assert flagged[0] <= NUM_RIGHT_FLAGGED
