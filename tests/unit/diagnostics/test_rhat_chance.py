"""The chance of an R-hat: uniform where chains agree, and small where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.rhat_chance import LEVEL, chance_of_r_hat


def autoregressive(seed: int, rho: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return stationary AR(1) chains of unit variance, shape (chain, draw, coordinate)."""
    noise = np.random.default_rng(seed).normal(size=shape) * np.sqrt(1 - rho**2)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


@pytest.mark.parametrize(("rho", "num_draws"), [(0.0, 200), (0.5, 500)])
def test_chains_that_agree_have_a_small_chance_seldom(rho, num_draws) -> None:
    chance = chance_of_r_hat(autoregressive(0, rho, (4, num_draws, 600)))
    # The smaller of two probabilities is doubled, so the share is at most as large, but for the error of effective sizes.
    for level in (0.5, 0.1):
        share = (chance < level).mean()
        assert 0.4 * level < share < 1.7 * level


def test_many_short_chains_that_agree_are_seldom_beyond_chance() -> None:
    """Their means are many, so that a small error of the variance which is expected of them counts."""
    x = autoregressive(5, 0.8, (256, 200, 100))
    assert (chance_of_r_hat(x) < LEVEL).mean() < 0.05
    x[:8] += 1.5
    assert (chance_of_r_hat(x) < LEVEL / 100).all()


def test_chains_that_agree_exceed_the_limit_of_r_hat_by_chance() -> None:
    x = autoregressive(1, 0.5, (4, 500, 230))
    table = convergence_table(x)
    assert table["ess_bulk"].min() > 400
    by_run = table["r_hat"].reshape(5, 46).max(axis=1)
    assert (by_run > 1.01).sum() >= 3, "five runs of 46 values"
    assert chance_of_r_hat(x).min() > LEVEL / 46


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_chains_that_disagree_have_no_chance(rho) -> None:
    x = autoregressive(2, rho, (4, 1000, 5))
    x[0, :, 1] += 0.7
    x[0, :, 2] *= 2
    x[0, :, 3] = x[0, 0, 3]
    x[:, :, 4] += np.linspace(-0.7, 0.7, 1000)
    chance = chance_of_r_hat(x)
    assert chance[0] > 0.05
    assert (chance[1:] < LEVEL / 100).all()


def test_chains_that_do_not_move_have_no_chance_and_constants_no_number() -> None:
    x = np.repeat(np.arange(4.0)[:, None, None], 50, axis=1) * np.ones(3)
    x[:, :, 1] = 2.0
    x[2, 3, 2] = np.nan
    assert np.isnan(chance_of_r_hat(x)).tolist() == [False, True, True]
    assert chance_of_r_hat(x)[0] == 0.0


def test_many_coordinates_are_ranked_in_blocks() -> None:
    x = autoregressive(3, 0.2, (8, 1100, 33))
    whole = chance_of_r_hat(x)
    np.testing.assert_array_equal(np.concatenate([chance_of_r_hat(x[:, :, i : i + 1]) for i in range(33)]), whole)


def test_two_values_have_the_chance_of_their_ranks() -> None:
    x = (autoregressive(4, 0.0, (4, 200, 1)) > 0).astype(np.float64)
    assert 0 < chance_of_r_hat(x)[0] <= 1


def test_chains_of_fewer_than_four_draws_have_no_chance() -> None:
    for num_draws in (1, 3):
        assert np.isnan(chance_of_r_hat(autoregressive(5, 0.0, (4, num_draws, 2)))).all()
