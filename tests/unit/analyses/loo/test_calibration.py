"""LOO-PIT flags data simulated from a wrong model, and not those from the right one.

The posteriors are conjugate, so that draws are exact. `make nightly` runs all twenty repeats, the suite one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.loo.leave_one_out import leave_one_out
from bayesmesh.analyses.loo.section import LEVEL
from bayesmesh.diagnostics.uniformity import assess_uniformity
from bayesmesh.store.scores import RowScores

IS_NIGHTLY = bool(os.environ.get("BAYESMESH_NIGHTLY"))
NUM_REPEATS, NUM_WRONG_FLAGGED, NUM_RIGHT_FLAGGED = (20, 18, 2) if IS_NIGHTLY else (1, 1, 0)
NUM_ROWS, SHAPE = 300, (4, 250)

Fit = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray]]


def fit_normal(y: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Log likelihood and simulated outcomes, (row, chain, draw), of a normal with unknown mean and variance."""
    num = len(y)
    variance = (num - 1) * y.var(ddof=1) / generator.chisquare(num - 1, SHAPE)
    mean = y.mean() + np.sqrt(variance / num) * generator.standard_normal(SHAPE)
    simulated = mean + np.sqrt(variance) * generator.standard_normal((num, *SHAPE))
    return stats.norm.logpdf(y[:, None, None], mean, np.sqrt(variance)), simulated


def fit_poisson(y: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The same of a Poisson distribution with unknown rate."""
    rate = generator.gamma(y.sum() + 0.5, 1 / len(y), SHAPE)
    return stats.poisson.logpmf(y[:, None, None], rate), generator.poisson(rate, (len(y), *SHAPE))


def scores(y: np.ndarray, fit: Fit, generator: np.random.Generator) -> RowScores:
    log_likelihood, simulated = fit(y, generator)
    observed, ties = y[:, None, None], generator.random(len(y))[:, None, None]
    below = np.where(simulated == observed, ties, simulated < observed).astype(np.float32)
    (elpd, k, effective, mcse, pit), _ = leave_one_out(log_likelihood, below)
    return RowScores(elpd, "", False, 1000, k, effective, mcse, pit)


CASES = {
    "normal": (fit_normal, lambda g: g.normal(2, 3, NUM_ROWS), lambda g: g.exponential(1, NUM_ROWS)),
    "poisson": (fit_poisson, lambda g: g.poisson(4, NUM_ROWS), lambda g: g.negative_binomial(4, 0.5, NUM_ROWS)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_model_is_flagged_and_a_right_one_is_not(case: str) -> None:
    fit, right, wrong = CASES[case]
    flagged = {"right": 0, "wrong": 0}
    for repeat in range(NUM_REPEATS):
        for kind, simulate in (("right", right), ("wrong", wrong)):
            generator = np.random.default_rng([7, repeat])
            pit = scores(simulate(generator), fit, generator).pit
            flagged[kind] += assess_uniformity(np.clip(pit, 0, 1)).p_value < LEVEL
    print(f"{case}: right {flagged['right']}, wrong {flagged['wrong']} of {NUM_REPEATS}")
    assert flagged["wrong"] >= NUM_WRONG_FLAGGED
    assert flagged["right"] <= NUM_RIGHT_FLAGGED
