"""Draws have the moments of posteriors that are known: closed forms, and references with their standard errors.

Inconclusive is not passed: R-hat and the effective sample size of both moments are gates before any comparison, and NaN
meets no gate.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy import stats

from bayesmesh.config.registry import load_component
from cases import Case
from kernel_options import kernels_of_any_target
from samplers.posteriors import CLOSED_FORMS, Truth, eight_schools, german_credit

FAMILY_ERROR = 1e-4
MOST_R_HAT, LEAST_ESS = 1.01, 400

NUM_CHAINS, NUM_WARMUP, NUM_DRAWS = 8, 500, 1000

OPTIONS: dict[str, dict[str, Any]] = {"hmc": {"metric": "diagonal", "num_leapfrog_steps": 7}}
MORE_DRAWS = {"random_walk": 12}
"""How many times as many draws, where one is worth less."""

KERNELS = ("nuts", "chees")
"""Defaults for few and for many chains; further kernels run in the nightly."""

OTHERS = [n for n in kernels_of_any_target() if n not in KERNELS and load_component("kernel", n).is_adjusted]

CASES = [
    # Mapped to the real line by a bijector, and cheap: this one stays in `make test`.
    ("beta_binomial", "hmc"),
    *(
        pytest.param(posterior, kernel, marks=pytest.mark.verify)
        for posterior in CLOSED_FORMS for kernel in KERNELS
    ),
    *(
        pytest.param(posterior, kernel, marks=pytest.mark.nightly)
        for posterior in CLOSED_FORMS for kernel in OTHERS if (posterior, kernel) != ("beta_binomial", "hmc")
    ),
]  # fmt: skip


def scores(draws: np.ndarray, truth: Truth) -> np.ndarray:
    """z of mean and second moment about the true mean, (2, coordinate).

    Args:
        draws: (chain, draw, coordinate).
        truth: its standard error counts as well.
    """
    found = np.full((2, draws.shape[2]), np.nan)
    for i in range(draws.shape[2]):
        standard = (draws[..., i] - truth.mean[i]) / truth.sd[i]
        error = truth.error[i] / truth.sd[i]
        for j, (series, expected, of_truth) in enumerate(((standard, 0.0, error), (standard**2, 1.0, 2 * error))):
            series = np.ascontiguousarray(series)
            assert array_stats.rhat(series) < MOST_R_HAT, f"coordinate {i}: not converged, so inconclusive"
            assert array_stats.ess(series, method="mean") >= LEAST_ESS, f"coordinate {i}: inconclusive"
            found[j, i] = (series.mean() - expected) / np.hypot(array_stats.mcse(series, method="mean"), of_truth)
    return found


def critical(found: np.ndarray) -> float:
    return float(stats.norm.isf(FAMILY_ERROR / 2 / found.size))


def passes(found: np.ndarray) -> bool:
    """The gate; NaN does not pass it."""
    return bool((np.abs(found) < critical(found)).all())


def check(
    case: Case,
    truth: Truth,
    kernel: str,
    build: Callable[..., Any],
    record: Callable[[str, str], None],
    *,
    more_draws: int = 1,
    **options: Any,
) -> None:
    num_draws = NUM_DRAWS * MORE_DRAWS.get(kernel, more_draws)
    options = OPTIONS.get(kernel, {}) | options
    built = build(
        case,
        kernel,
        num_chains=max(NUM_CHAINS, load_component("kernel", kernel).min_chains),
        num_warmup=NUM_WARMUP,
        most_draws=NUM_DRAWS,
        **options,
    )
    run = built.run(num_draws)
    draws = truth.quantities({k: np.swapaxes(v, 0, 1).astype(np.float64) for k, v in run.draws.items()})
    found = scores(draws, truth)
    record(f"largest |z| {np.abs(found).max():.2f} of {found.size}", f"{critical(found):.2f}")
    assert passes(found), found
    # The test sees a posterior that is off by an eighth of its standard deviation, or an eighth too wide.
    wrong = Truth(truth.mean + truth.sd / 8, truth.sd, truth.error, truth.quantities)
    assert not passes(scores(draws, wrong))
    wrong = Truth(truth.mean, truth.sd * 9 / 8, truth.error, truth.quantities)
    assert not passes(scores(draws, wrong))


MORE_DRAWS_OF = {"enumerated_mixture": 2}
"""How many times as many draws, where a second moment is worth less: of two modes."""


@pytest.mark.parametrize(("posterior", "kernel"), CASES)
def test_closed_form(posterior: str, kernel: str, build, record) -> None:
    check(*CLOSED_FORMS[posterior](), kernel, build, record, more_draws=MORE_DRAWS_OF.get(posterior, 1))


@pytest.mark.verify
@pytest.mark.parametrize("kernel", KERNELS)
def test_eight_schools(kernel: str, build, record) -> None:
    """Centred: the neck of the funnel takes short steps and many draws."""
    check(*eight_schools(), kernel, build, record, more_draws=6, target_acceptance=0.95)


@pytest.mark.verify
@pytest.mark.real_data
@pytest.mark.parametrize("kernel", KERNELS)
def test_german_credit(kernel: str, mirror: Path, build, record) -> None:
    check(*german_credit(mirror), kernel, build, record)


def test_a_draw_that_is_not_a_number_is_not_passed() -> None:
    assert not passes(np.array([[0.1, np.nan]]))
    draws = np.random.default_rng(0).standard_normal((4, 1000, 1))
    truth = Truth(np.zeros(1), np.ones(1), np.zeros(1), lambda draws: draws["x"])
    assert passes(scores(draws, truth))
    draws[0, 0] = np.nan
    with pytest.raises(AssertionError, match="inconclusive"):
        scores(draws, truth)
