"""Statistics of quantiles, small intervals and short chains against arviz_stats, also with ties and odd draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmesh.diagnostics.convergence import convergence_table
from bayesmesh.diagnostics.efficiency import growing_ess, local_ess, nested_r_hat, quantile_ess, quantile_mcse

AXES = {"chain_axis": 0, "draw_axis": 1}
SHAPES = [(4, 100), (2, 61), (1, 30), (4, 7), (64, 13)]
PROBABILITIES = [0.05, 0.25, 0.5, 0.9]


def draws(kind: str, shape: tuple[int, int]) -> np.ndarray:
    """Return six coordinates of a kind, the last of them constant."""
    x = np.random.default_rng(0).normal(size=(*shape, 6))
    if kind == "rejected":
        is_kept = np.random.default_rng(1).uniform(size=(shape[0], shape[1] - 1, 1)) < 0.5
        for draw in range(1, shape[1]):
            x[:, draw] = np.where(is_kept[:, draw - 1], x[:, draw - 1], x[:, draw])
    x = {"rounded": np.round(x), "sums": np.cumsum(x, axis=1)}.get(kind, x)
    x[:, :, 5] = 1.5
    return x


def reference(statistic: Callable[..., np.ndarray], *arguments: object, **options: object) -> np.ndarray:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return np.asarray(statistic(*arguments, **options))


@pytest.mark.parametrize("kind", ["independent", "rejected", "rounded", "sums"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equals_arviz(kind: str, shape: tuple[int, int]) -> None:
    x = draws(kind, shape)
    of_quantiles, errors, local = quantile_ess(x, PROBABILITIES), quantile_mcse(x, PROBABILITIES), local_ess(x, 5)
    for row, p in enumerate(PROBABILITIES):
        expected = reference(array_stats.ess, x, method="quantile", prob=p, **AXES)
        np.testing.assert_allclose(of_quantiles[row], expected, rtol=1e-10)
        expected = reference(array_stats.mcse, x, method="quantile", prob=p, **AXES)
        np.testing.assert_allclose(errors[row], expected, rtol=1e-10, atol=1e-14)
    for row, low in enumerate(np.linspace(0, 1, 6)[:-1]):
        expected = reference(array_stats.ess, x, method="local", prob=(low, np.linspace(0, 1, 6)[row + 1]), **AXES)
        np.testing.assert_allclose(local[row], expected, rtol=1e-10)


@pytest.mark.parametrize("kind", ["independent", "rejected", "rounded", "sums"])
@pytest.mark.parametrize(("shape", "size"), [((4, 100), 1), ((4, 61), 2), ((64, 13), 16), ((64, 4), 8)], ids=str)
def test_nested_r_hat_equals_arviz(kind: str, shape: tuple[int, int], size: int) -> None:
    x, superchains = draws(kind, shape), np.arange(shape[0]) // size
    expected = reference(array_stats.rhat_nested, x, superchains, **AXES)
    np.testing.assert_allclose(nested_r_hat(x, superchains), expected, rtol=1e-10)


def test_nested_r_hat_judges_short_chains_that_r_hat_cannot() -> None:
    x = np.random.default_rng(0).normal(size=(512, 4, 2))
    superchains = np.arange(512) % 16
    x[:, :, 1] += (superchains % 2)[:, None]
    assert convergence_table(x)["r_hat"][0] > 1.015
    agree, apart = nested_r_hat(x, superchains)
    assert agree < 1.01
    assert apart > 1.05


@pytest.mark.parametrize("superchains", [np.zeros(4, int), np.array([0, 0, 0, 1]), np.array([0, 1])], ids=str)
def test_superchains_of_other_sizes_are_refused(superchains: np.ndarray) -> None:
    with pytest.raises(ValueError, match="two or more, of equal size"):
        nested_r_hat(np.zeros((4, 10, 1)), superchains)


def test_effective_sizes_grow_as_those_of_the_first_draws() -> None:
    x = draws("rejected", (3, 90))
    bulk, tail = growing_ess(x, [4, 31, 90])
    for row, count in enumerate([4, 31, 90]):
        table = convergence_table(x[:, :count])
        np.testing.assert_array_equal(bulk[row], table["ess_bulk"])
        np.testing.assert_array_equal(tail[row], table["ess_tail"])


def test_a_draw_that_is_not_finite_leaves_no_number_and_blocks_give_the_same() -> None:
    x = np.random.default_rng(0).normal(size=(8, 1100, 33)).astype(np.float32)
    x[2, 3, 7] = np.nan
    found = quantile_ess(x, [0.5])
    assert np.isnan(found[0]).tolist() == [i == 7 for i in range(33)]
    np.testing.assert_array_equal(found[:, 20:], quantile_ess(x[:, :, 20:], [0.5]))
    assert np.isnan(local_ess(x[:, :, 7:8], 3)).all()
