"""Means of densities over draws, their errors, and outcomes that change their unit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bayesmesh.analyses._refit_scores import check_outcomes, error_of_sum, log_mean_density, relative_densities
from bayesmesh.errors import ConfigError


def test_the_mean_is_taken_of_densities_and_its_error_is_that_of_repeats() -> None:
    random = np.random.default_rng(0)
    score, error = log_mean_density(np.log(random.gamma(2.0, size=(400, 4, 50))))
    # The mean is 2 and the standard deviation of one draw the root of 2.
    assert score.mean() == pytest.approx(math.log(2), abs=0.02)
    assert error.mean() == pytest.approx(math.sqrt(2) / 2 / math.sqrt(200), rel=0.15)
    assert score.std() == pytest.approx(error.mean(), rel=0.2)


@pytest.mark.parametrize(("odd", "score"), [(np.nan, -np.inf), (-np.inf, math.log(0.75))])
def test_draws_without_a_density(odd: float, score: float) -> None:
    values = np.zeros((2, 1, 4))
    values[1, 0, 2] = odd
    found, error = log_mean_density(values)
    assert (found[0], error[0]) == (0.0, 0.0)
    assert found[1] == pytest.approx(score)
    assert math.isinf(error[1]) == math.isnan(odd)


def test_rows_that_share_draws_have_an_error_of_their_sum() -> None:
    values = np.log(np.random.default_rng(1).gamma(2.0, size=(1, 2, 100)))
    same = np.repeat(values, 3, axis=0)
    score, error = log_mean_density(same)
    assert error_of_sum(relative_densities(same, score)) == pytest.approx(3 * error[0])
    assert error_of_sum(np.full((1, 4), np.nan)) == math.inf


def test_an_outcome_whose_unit_changes_is_refused() -> None:
    rows, own = np.array([4, 7]), np.array([1.0, 2.0])
    check_outcomes("k_fold", object(), rows, own.copy(), own)
    with pytest.raises(
        ConfigError, match=r"key 'k_fold': model object has outcome 2.5 in row 7 where it is left out, and 2.0"
    ):
        check_outcomes("k_fold", object(), rows, np.array([1.0, 2.5]), own)
