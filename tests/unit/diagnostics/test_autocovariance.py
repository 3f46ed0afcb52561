"""Geyer's sequence against the definition, one lag at a time, also where pairs are exactly zero."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.diagnostics.autocovariance import (
    _integrated_time,
    _reference_autocorrelation,
    autocovariance,
    effective_sample_size,
)


def integrated_time_of_one(rho: np.ndarray) -> float:
    """Return the integrated time as Stan and ArviZ loop over it."""
    kept = np.zeros(len(rho))
    kept[:2] = rho[:2]
    even, odd, t = rho[0], rho[1], 1
    while t < len(rho) - 3 and even + odd > 0:
        even, odd = rho[t + 1], rho[t + 2]
        if even + odd >= 0:
            kept[t + 1 : t + 3] = even, odd
        t += 2
    last = t - 2
    if even > 0:
        kept[last + 1] = even
    for t in range(1, last - 1, 2):
        if kept[t + 1] + kept[t + 2] > kept[t - 1] + kept[t]:
            kept[t + 1 : t + 3] = (kept[t - 1] + kept[t]) / 2
    return -1 + 2 * kept[: last + 1].sum() + kept[last + 1]


@pytest.mark.parametrize("num_draws", [2, 3, 4, 5, 6, 7, 12, 25])
def test_integrated_time_of_many_equals_that_of_each(num_draws) -> None:
    # Quarters are exact in binary: sums of pairs are often zero, and nothing is rounded.
    rho = np.random.default_rng(num_draws).integers(-2, 4, size=(400, num_draws)) / 4
    rho[:, 0] = 1.0
    time, is_open, _ = _integrated_time(rho, num_draws)
    assert not is_open.any()
    np.testing.assert_array_equal(time, [integrated_time_of_one(row) for row in rho])


def test_autocovariance_equals_the_sum_over_lags() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 37))
    centred = x - x.mean(axis=-1, keepdims=True)
    for lag in (0, 1, 20, 36):
        direct = (centred[..., : 37 - lag] * centred[..., lag:]).sum(axis=-1) / 37
        np.testing.assert_allclose(autocovariance(x)[..., lag], direct, atol=1e-14)


def test_where_the_sequence_ends_does_not_depend_on_rounding() -> None:
    # Among indicators of short chains one pair in some thousands is exactly zero, before it is rounded.
    x = (np.random.default_rng(0).normal(size=(20_000, 4, 12)) > 0).astype(np.float64)
    tau, _, is_undecided = _integrated_time(_reference_autocorrelation(x), 12)
    assert is_undecided.any()
    np.testing.assert_allclose(effective_sample_size(x), 48 / np.maximum(tau, 1 / np.log10(48)), rtol=1e-10)


@pytest.mark.parametrize("distance", [0.0, 3.0])
def test_chains_that_are_apart_take_all_lags(distance) -> None:
    # Their autocorrelation stays positive at every lag, so the first ones do not suffice.
    x = np.random.default_rng(0).normal(size=(6, 2, 800)) + distance * np.arange(2)[:, None]
    tau, _, _ = _integrated_time(_reference_autocorrelation(x), 800)
    assert (tau > 400).all() == bool(distance)
    np.testing.assert_allclose(effective_sample_size(x), 1600 / tau, rtol=1e-12)
