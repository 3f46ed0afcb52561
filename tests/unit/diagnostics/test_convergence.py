"""Convergence statistics against arviz_stats, against chains of known autocorrelation, and in blocks; the chance of an R-hat."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.signal import lfilter

from bayesmesh.diagnostics import convergence
from bayesmesh.diagnostics.convergence import LEVEL, STATISTICS, chance_of_r_hat, convergence_table


def reference_table(x: np.ndarray) -> dict[str, np.ndarray]:
    axes = {"chain_axis": 0, "draw_axis": 1}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # arviz divides zero by zero for constant coordinates
        return {
            "mean": x.mean(axis=(0, 1)),
            "sd": x.std(axis=(0, 1), ddof=1),
            "q5": np.quantile(x, 0.05, axis=(0, 1)),
            "q95": np.quantile(x, 0.95, axis=(0, 1)),
            "mcse_mean": array_stats.mcse(x, **axes),
            "r_hat": array_stats.rhat(x, **axes),
            "ess_bulk": array_stats.ess(x, method="bulk", **axes),
            "ess_tail": array_stats.ess(x, method="tail", prob=(0.05, 0.95), **axes),
        }


def assert_equal_tables(found: dict[str, np.ndarray], expected: dict[str, np.ndarray], atol: float = 0.0) -> None:
    assert tuple(found) == STATISTICS
    for name in STATISTICS:
        # A mean near zero has no relative precision: both are sums of rounded draws.
        tolerance = max(atol, 1e-14) if name == "mean" else atol
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10, atol=tolerance, err_msg=name)


def autoregressive(rng: np.random.Generator, rho: float, shape: tuple[int, ...]) -> np.ndarray:
    """Return stationary AR(1) chains of unit variance, shape (chain, draw, coordinate)."""
    noise = rng.normal(size=shape) * np.sqrt(1 - rho**2)
    noise[:, 0] /= np.sqrt(1 - rho**2)
    return lfilter([1.0], [1.0, -rho], noise, axis=1)


def independent(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.normal(size=shape)


def heavy_tailed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.standard_cauchy(size=shape)


def with_rejections(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    x = rng.normal(size=shape)
    for draw in range(1, shape[1]):
        if rng.uniform() < 0.4:
            x[:, draw] = x[:, draw - 1]
    return x


def rounded(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.round(rng.normal(size=shape))


def binary(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (rng.normal(size=shape) > 0).astype(float)


def antithetic(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return autoregressive(rng, -0.9, shape)


def sticky(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return autoregressive(rng, 0.95, shape)


def stuck_chains(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.repeat(rng.normal(size=(shape[0], 1, shape[2])), shape[1], axis=1)


KINDS = [independent, heavy_tailed, with_rejections, rounded, binary, antithetic, sticky]
SHAPES = [(4, 100), (4, 101), (1, 60), (2, 33), (3, 4), (4, 5), (2, 6), (4, 7), (1, 9), (5, 12), (16, 20), (64, 13)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_arviz(kind, shape) -> None:
    for seed in range(2):
        x = kind(np.random.default_rng(seed), (*shape, 6))
        assert_equal_tables(convergence_table(x), reference_table(x))


@pytest.mark.parametrize("shape", [(4, 50), (2, 51), (4, 4)], ids=str)
def test_stuck_chains_equal_arviz(shape) -> None:
    x = stuck_chains(np.random.default_rng(0), (*shape, 20))
    found, expected = convergence_table(x), reference_table(x)
    for name in ("r_hat", "ess_bulk", "ess_tail", "sd"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-10, err_msg=name)
    assert (found["r_hat"] > 1e3).all()


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (4, 1), (4, 2), (4, 3)], ids=str)
def test_too_few_draws_give_mean_sd_and_quantiles_only(shape) -> None:
    x = np.random.default_rng(0).normal(size=(*shape, 3))
    found = convergence_table(x)
    np.testing.assert_allclose(found["mean"], x.mean(axis=(0, 1)), rtol=1e-12)
    for name, probability in (("q5", 0.05), ("q95", 0.95)):
        np.testing.assert_allclose(found[name], np.quantile(x, probability, axis=(0, 1)), rtol=1e-12)
    assert np.isnan(found["sd"]).all() == (x[..., 0].size == 1)
    for name in ("mcse_mean", "r_hat", "ess_bulk", "ess_tail"):
        assert np.isnan(found[name]).all(), name


def test_constant_coordinates_have_no_r_hat_and_no_spread() -> None:
    x = np.random.default_rng(0).normal(size=(4, 51, 3))
    x[:, :, 1] = 0.1
    found, expected = convergence_table(x), reference_table(x)
    assert_equal_tables(found, expected, atol=1e-15)
    assert np.isnan(found["r_hat"]).tolist() == [False, True, False]
    assert found["mean"][1] == 0.1
    assert found["sd"][1] == found["mcse_mean"][1] == 0.0


def test_coordinates_without_any_finite_chain_are_all_unknown() -> None:
    table = convergence_table(np.full((2, 8, 3), -np.inf))
    assert all(np.isnan(values).all() and values.shape == (3,) for values in table.values())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_draw_that_is_not_finite_makes_its_coordinate_unknown(value) -> None:
    x = np.random.default_rng(0).normal(size=(4, 50, 3))
    clean = convergence_table(x)
    x[2, 17, 1] = value
    found = convergence_table(x)
    for name in STATISTICS:
        assert np.isnan(found[name][1]), name
        np.testing.assert_array_equal(found[name][[0, 2]], clean[name][[0, 2]])


def test_overflowing_draws_give_no_number_that_passes() -> None:
    found = convergence_table(np.random.default_rng(0).normal(size=(4, 50, 1)) * 1e200)
    assert not np.isfinite(found["sd"][0])
    assert not np.isfinite(found["mcse_mean"][0] / 1.0)


def test_float32_is_computed_in_float64() -> None:
    x = (np.random.default_rng(0).normal(size=(4, 60, 5)) + 1e4).astype(np.float32)
    assert_equal_tables(convergence_table(x), reference_table(x.astype(np.float64)))


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5, 0.9])
def test_autoregressive_chains_have_the_known_effective_sample_size(rho) -> None:
    num_chains, num_draws = 4, 4000
    x = autoregressive(np.random.default_rng(3), rho, (num_chains, num_draws, 40))
    known = num_chains * num_draws * (1 - rho) / (1 + rho)
    found = convergence_table(x)
    assert found["ess_bulk"].mean() == pytest.approx(known, rel=0.1)
    assert (1 / found["mcse_mean"] ** 2).mean() == pytest.approx(known, rel=0.1)


def test_r_hat_sees_a_shifted_chain_and_another_scale() -> None:
    x = np.random.default_rng(0).normal(size=(4, 500, 3))
    x[0, :, 1] += 1.0
    x[0, :, 2] *= 5.0  # same mean: only the folded draws differ
    r_hat = convergence_table(x)["r_hat"]
    assert r_hat[0] < 1.01
    assert r_hat[1] > 1.05
    assert r_hat[2] > 1.05


def test_r_hat_sees_a_chain_that_drifts() -> None:
    x = np.random.default_rng(0).normal(size=(1, 1, 1)) + np.linspace(-2, 2, 400)[None, :, None]
    x = x + np.random.default_rng(1).normal(size=(4, 400, 1))
    assert convergence_table(x)["r_hat"][0] > 1.1  # all chains alike; their halves are not


@pytest.mark.parametrize("num_draws", [40, 41])
def test_blocks_give_the_same_answer_as_one_block(num_draws, monkeypatch) -> None:
    x = with_rejections(np.random.default_rng(0), (3, num_draws, 37))
    whole = convergence_table(x)
    for block_bytes in (1, 5 * 3 * num_draws * 256):
        monkeypatch.setattr(convergence, "BLOCK_BYTES", block_bytes)
        in_blocks = convergence_table(x)
        for name in STATISTICS:
            np.testing.assert_array_equal(in_blocks[name], whole[name], err_msg=name)


def test_memory_stays_within_the_bound(monkeypatch) -> None:
    monkeypatch.setattr(convergence, "_PRIMER_BYTES", 0)  # would hide what the blocks need
    x = np.round(np.random.default_rng(0).normal(size=(4, 251, 2000)), 1)
    bound = 6 * 2**20
    monkeypatch.setattr(convergence, "BLOCK_BYTES", bound)
    tracemalloc.start()
    try:
        convergence_table(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= bound
    assert peak > bound / 3  # the bound is used: small blocks are slow


@pytest.mark.parametrize("shape", [(4, 10), (4, 0, 3), (0, 10, 3)], ids=str)
def test_draws_of_another_shape_are_refused(shape) -> None:
    with pytest.raises(ValueError, match="chain, draw, coordinate"):
        convergence_table(np.zeros(shape))


def test_no_coordinates_give_empty_columns() -> None:
    assert {name: values.shape for name, values in convergence_table(np.zeros((4, 10, 0))).items()} == dict.fromkeys(
        STATISTICS, (0,)
    )


@pytest.mark.parametrize(("rho", "num_draws"), [(0.0, 200), (0.5, 500)])
def test_chains_that_agree_have_a_small_chance_seldom(rho, num_draws) -> None:
    chance = chance_of_r_hat(autoregressive(np.random.default_rng(0), rho, (4, num_draws, 600)))
    # The smaller of two probabilities is doubled, so the share is at most as large, but for the error of effective sizes.
    for level in (0.5, 0.1):
        share = (chance < level).mean()
        assert 0.4 * level < share < 1.7 * level


def test_many_short_chains_that_agree_are_seldom_beyond_chance() -> None:
    """Their means are many, so that a small error of the variance which is expected of them counts."""
    x = autoregressive(np.random.default_rng(5), 0.8, (256, 200, 100))
    assert (chance_of_r_hat(x) < LEVEL).mean() < 0.05
    x[:8] += 1.5
    assert (chance_of_r_hat(x) < LEVEL / 100).all()


def test_chains_that_agree_exceed_the_limit_of_r_hat_by_chance() -> None:
    x = autoregressive(np.random.default_rng(1), 0.5, (4, 500, 230))
    table = convergence_table(x)
    assert table["ess_bulk"].min() > 400
    by_run = table["r_hat"].reshape(5, 46).max(axis=1)
    assert (by_run > 1.01).sum() >= 3, "five runs of 46 values"
    assert chance_of_r_hat(x).min() > LEVEL / 46


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_chains_that_disagree_have_no_chance(rho) -> None:
    x = autoregressive(np.random.default_rng(2), rho, (4, 1000, 5))
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
    x = autoregressive(np.random.default_rng(3), 0.2, (8, 1100, 33))
    whole = chance_of_r_hat(x)
    np.testing.assert_array_equal(np.concatenate([chance_of_r_hat(x[:, :, i : i + 1]) for i in range(33)]), whole)


def test_two_values_have_the_chance_of_their_ranks() -> None:
    x = (autoregressive(np.random.default_rng(4), 0.0, (4, 200, 1)) > 0).astype(np.float64)
    assert 0 < chance_of_r_hat(x)[0] <= 1


def test_chains_of_fewer_than_four_draws_have_no_chance() -> None:
    for num_draws in (1, 3):
        assert np.isnan(chance_of_r_hat(autoregressive(np.random.default_rng(5), 0.0, (4, num_draws, 2)))).all()
