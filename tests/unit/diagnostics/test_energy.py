"""Fraction of missing information and share of divergent draws."""

from __future__ import annotations

import numpy as np
import pytest
from arviz_stats.base import array_stats

from bayesmesh.diagnostics.energy import bfmi, divergence_share


def test_bfmi_equals_arviz() -> None:
    energy = np.random.default_rng(0).normal(size=(4, 101)).cumsum(axis=1)
    np.testing.assert_allclose(bfmi(energy), array_stats.bfmi(energy), rtol=1e-12)


def test_bfmi_of_independent_energies_is_two_and_of_a_slow_walk_is_small() -> None:
    noise = np.random.default_rng(1).normal(size=(2, 5000))
    assert bfmi(noise) == pytest.approx([2.0, 2.0], rel=0.1)
    assert (bfmi(noise.cumsum(axis=1)) < 0.1).all()


def test_bfmi_is_not_a_number_where_it_is_not_known() -> None:
    energy = np.random.default_rng(0).normal(size=(4, 50))
    energy[1] = 3.3
    energy[2, 7] = np.inf
    energy[3, 7] = np.nan
    assert np.isnan(bfmi(energy)).tolist() == [False, True, True, True]
    assert np.isnan(bfmi(energy[:, :1])).all()


def test_share_of_divergent_draws() -> None:
    assert divergence_share(np.zeros((4, 10), dtype=bool)) == 0.0
    assert divergence_share(np.eye(4, 10)) == 0.1
    assert np.isnan(divergence_share(np.zeros((4, 0))))
