"""The Monte Carlo error of a sum over rows that share draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.analyses.loo.leave_one_out import error_of_influence, leave_one_out

NUM_ROWS, CHAINS, DRAWS = 30, 4, 500


def log_likelihoods(rho: float, num_times: int) -> np.ndarray:
    """Of rows of a normal with a mean whose draws are an autoregression, (time, row, chain, draw)."""
    random = np.random.default_rng(2)
    y = random.standard_normal(NUM_ROWS) + 1
    draws = np.empty((num_times, CHAINS, DRAWS))
    draws[..., 0] = random.standard_normal(draws.shape[:-1])
    for at in range(1, DRAWS):
        step = np.sqrt(1 - rho**2) * random.standard_normal(draws.shape[:-1])
        draws[..., at] = rho * draws[..., at - 1] + step
    # Pulled away from the mean of the rows, as by a prior: each draw moves the scores of most rows in one direction.
    mean = y.mean() + 0.4 + draws / NUM_ROWS**0.5
    return stats.norm.logpdf(y[None, :, None, None], mean[:, None], 1.0)


@pytest.mark.parametrize("rho", [0.0, 0.6])
def test_it_is_the_spread_of_sums_over_repeated_runs(rho: float) -> None:
    sums, stated, alone = [], [], []
    for values in log_likelihoods(rho, 120):
        (elpd, _, _, mcse, _), influence = leave_one_out(values)
        sums.append(elpd.sum())
        stated.append(error_of_influence(influence))
        alone.append(np.linalg.norm(mcse))
    assert np.std(sums) == pytest.approx(np.median(stated), rel=0.25)
    assert np.median(alone) < 0.7 * np.std(sums), "as if rows had draws of their own"


def test_rows_that_pareto_k_does_not_allow_have_errors_of_their_own() -> None:
    values = log_likelihoods(0.0, 1)[0]
    values[3] = -np.square(np.random.default_rng(3).standard_cauchy((CHAINS, DRAWS)))
    (_, k, *_), influence = leave_one_out(values)
    assert k[3] > 0.7 > np.delete(k, 3).max()
    _, without = leave_one_out(np.delete(values, 3, axis=0))
    np.testing.assert_allclose(influence, without, atol=1e-15)
    assert error_of_influence(None) == 0
