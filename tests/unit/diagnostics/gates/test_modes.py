"""Chains in another mode are named with the distance of their log density."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bayesmesh.diagnostics.gates.modes import late_chains, modes_gate, separated_chains


def densities(num_chains: int = 9, dimension: int = 10) -> np.ndarray:
    """Log densities of independent draws of a normal, (chain, draw)."""
    return -0.5 * np.random.default_rng(4).chisquare(dimension, size=(num_chains, 200))


@pytest.mark.parametrize("dimension", [1, 10, 10_000])
def test_chains_of_one_mode_miss_nothing(dimension: int) -> None:
    assert modes_gate(densities(dimension=dimension)) is None
    assert modes_gate(np.full((4, 50), -3.0)) is None, "a uniform density"
    assert modes_gate(np.linspace(0, 1, 4)[:, None] + np.zeros((4, 50))) is None, "constant chains that differ little"


def test_chains_of_a_second_mode_are_named_with_their_distance() -> None:
    lp = densities()
    lp[[3, 7]] -= 40
    found = modes_gate(lp)
    assert (found.name, found.verdict, found.value) == ("modes", "fail", 2.0)
    assert found.where in ("chain 3", "chain 7")
    said = r"a second mode, or lost chains: chains 3 and 7 have a log density ([0-9.]+) nats lower than the others; order components .* or use a narrower prior; .*"
    np.testing.assert_allclose(float(re.fullmatch(said, found.message)[1]), 40, atol=1)


def test_a_chain_that_comes_late_is_named_with_the_draws_that_it_missed() -> None:
    lp = densities(32)
    lp[28, :40] -= 40
    found = modes_gate(lp)
    assert (found.name, found.verdict, found.value, found.where) == ("modes", "fail", 1.0, "chain 28")
    said = r"chains that arrived late, .*: chain 28 had a log density ([0-9.]+) nats lower than the others until draw 40; .*"
    np.testing.assert_allclose(float(re.fullmatch(said, found.message)[1]), 40, atol=1)
    assert late_chains(lp[:, :100]) == {}, "too few draws of a part"


def test_a_chain_that_comes_so_late_that_its_mean_is_apart_is_late_and_one_that_stays_away_is_lost() -> None:
    lp = densities()
    length = lp.shape[1]
    lp[1, : length * 4 // 10] -= 42.0
    assert 1 in separated_chains(lp)
    assert "arrived late" in modes_gate(lp).message
    assert "second mode, or lost" not in modes_gate(lp).message
    lp[2] -= 42.0
    said = modes_gate(lp).message
    assert "lost chains: chain 2 has a log density" in said
    assert "chain 1 had a log density" in said
    assert f"until draw {length * 4 // 10}" in said
    assert modes_gate(lp).value == 2
