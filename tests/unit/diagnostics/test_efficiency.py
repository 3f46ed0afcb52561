"""Statistics of quantiles, small intervals and short chains against arviz_stats, also with ties and odd draws."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmesh.diagnostics.efficiency import (
    NUM_INTERVALS,
    QUANTILES,
    efficiency_table,
    local_ess,
    quantile_ess,
    quantile_mcse,
)

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
    np.testing.assert_allclose(efficiency_table(x, superchains)["nested_r_hat"], expected, rtol=1e-10)


def test_a_draw_that_is_not_finite_leaves_no_number_and_blocks_give_the_same() -> None:
    x = np.random.default_rng(0).normal(size=(8, 1100, 33)).astype(np.float32)
    x[2, 3, 7] = np.nan
    found = quantile_ess(x, [0.5])
    assert np.isnan(found[0]).tolist() == [i == 7 for i in range(33)]
    np.testing.assert_array_equal(found[:, 20:], quantile_ess(x[:, :, 20:], [0.5]))
    assert np.isnan(local_ess(x[:, :, 7:8], 3)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_table_of_all_coordinates_equals_arviz(dtype: type) -> None:
    """Random coordinates of slow and of fast chains, one of them constant and one not finite."""
    random = np.random.default_rng(6)
    x = random.normal(size=(4, 61, 40))
    x[:, :, ::2] = np.cumsum(x[:, :, ::2], axis=1)
    x[:, :, 7], x[1, 3, 8] = 2.5, np.nan
    x = x.astype(dtype)
    table = efficiency_table(x, np.arange(4) // 2)
    assert all(np.isnan(column[8]) for column in table.values())
    kept = np.delete(np.arange(40), 8)
    y, edges = x[:, :, kept].astype(np.float64), np.linspace(0, 1, NUM_INTERVALS + 1)
    sizes = np.stack([reference(array_stats.ess, y, method="quantile", prob=p, **AXES) for p in QUANTILES])
    local = np.stack(
        [
            reference(array_stats.ess, y, method="local", prob=(low, high), **AXES)
            for low, high in itertools.pairwise(edges)
        ]
    )
    np.testing.assert_allclose(table["ess_quantile"][kept], sizes.min(axis=0), rtol=1e-10)
    np.testing.assert_allclose(table["ess_local"][kept], local.min(axis=0), rtol=1e-10)
    near = np.abs(edges[:-1, None] + 0.05 - table["interval"][kept]).argmin(axis=0)
    np.testing.assert_allclose(np.take_along_axis(local, near[None], axis=0)[0], local.min(axis=0), rtol=1e-10)
    for name, p in (("mcse_q5", 0.05), ("mcse_q50", 0.5), ("mcse_q95", 0.95)):
        expected = reference(array_stats.mcse, y, method="quantile", prob=p, **AXES)
        np.testing.assert_allclose(table[name][kept], expected, rtol=1e-10, atol=1e-14)
    expected = reference(array_stats.rhat_nested, y, np.arange(4) // 2, **AXES)
    np.testing.assert_allclose(table["nested_r_hat"][kept], expected, rtol=1e-10)
