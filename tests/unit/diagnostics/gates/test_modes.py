"""Chains in another mode are named by the distance of their log density, or by their stays on one side of a threshold."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bayesmesh.diagnostics.convergence import chance_of_r_hat
from bayesmesh.diagnostics.gates.modes import (
    FEWEST_DRAWS,
    ModeStays,
    find_modes,
    late_chains,
    modes_gate,
    separated_chains,
)


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


DRAWS = 1000


def around(*centres: float, seed: int = 0, correlation: float = 0.8) -> np.ndarray:
    """Autoregressive chains of variance 1 around these centres, (chain, draw)."""
    random = np.random.default_rng(seed)
    noise = random.normal(0, np.sqrt(1 - correlation**2), (len(centres), DRAWS))
    noise[:, 0] = random.normal(size=len(centres))
    for draw in range(1, DRAWS):
        noise[:, draw] += correlation * noise[:, draw - 1]
    return noise + np.array(centres)[:, None]


def gate(**arrays: np.ndarray):
    found = ModeStays()
    for name, draws in arrays.items():
        flat = draws.reshape(*draws.shape[:2], -1)
        found.add(name, flat, [f"{name}[{i}]" for i in range(flat.shape[2])], chance_of_r_hat(flat))
    return found.gate()


def test_components_that_change_places_are_named_with_their_chains() -> None:
    first, second = around(-8, -8, 8, -8), around(8, 8, -8, 8, seed=1)
    found = gate(weight=around(0, 0, 0, 0, seed=2), mean=np.stack([first, 2 * second], axis=2))
    assert (found.name, found.verdict, found.value) == ("modes", "fail", 1.0)
    below, above = ("chains 0, 1 and 3", "chain 2") if found.where == "mean[0]" else ("chain 2", "chains 0, 1 and 3")
    assert f"never moved from one side to the other: {below} always below, {above} always above" in found.message
    assert "order components" in found.message


def test_chains_that_seldom_go_over_are_counted() -> None:
    """Two modes far apart, and four crossings in 4,000 draws."""
    sides = np.ones((4, DRAWS))
    sides[0, 300:] = sides[1, :500] = sides[2, 100:900] = -1
    found = gate(location=(9 * sides + around(0, 0, 0, 0))[..., None])
    assert f"in {np.count_nonzero(sides < 0):,} of 4,000 draws" in found.message
    assert "moved only 4 times from one side to the other: chain 3 always above;" in found.message
    assert found.value == 1.0


def test_a_chain_that_comes_late_is_called_late() -> None:
    """It goes over once, and all chains end in one mode: a longer warmup is the remedy."""
    sides = np.ones((4, DRAWS))
    sides[0, :500] = sides[2, :200] = -1
    found = gate(location=(9 * sides + around(0, 0, 0, 0))[..., None])
    assert (found.verdict, found.value) == ("fail", 2.0)
    assert "arrived late" in found.message
    assert "chains 0 and 2 had location[0] below" in found.message
    assert "until draw 500; run a longer warmup" in found.message
    assert "order components" not in found.message


def test_a_single_crossing_to_the_rarer_mode_counts_as_a_chain() -> None:
    sides = np.ones((4, DRAWS))
    sides[0, 400:] = -1
    found = gate(location=(9 * sides + around(0, 0, 0, 0))[..., None])
    assert found.value == 1.0
    assert "moved only once from one side to the other: chains 1, 2 and 3 always above;" in found.message


@pytest.mark.parametrize("num_chains", [2, 32])
def test_a_single_chain_in_the_other_mode_is_found(num_chains: int) -> None:
    found = find_modes(around(*[0.0] * (num_chains - 1), 12.0), "level")
    assert 4 < found.threshold < 10
    assert found.is_above.all(axis=1).tolist() == [False] * (num_chains - 1) + [True]


@pytest.mark.parametrize(
    "draws",
    [
        pytest.param(around(0, 0, 0, 0), id="chains that agree"),
        pytest.param(around(0, 0, 0, 2), id="chains that disagree in one mode"),
        pytest.param(around(*[0.0] * 31, 2.5), id="one chain that is off"),
        pytest.param(np.exp(2 * around(0, 0, 0, 0)), id="heavy tails"),
        pytest.param(np.sign(around(0, 0, 0, 0)), id="two values"),
        pytest.param(np.repeat([[0.0], [5.0], [0.0], [5.0]], DRAWS, axis=1), id="chains that do not move"),
        pytest.param(around(0, 30)[:, : FEWEST_DRAWS - 1], id="few draws"),
        pytest.param(np.where(np.arange(DRAWS) == 7, np.nan, around(0, 30)), id="not finite"),
    ],
)
def test_other_draws_have_one_mode(draws: np.ndarray) -> None:
    assert find_modes(draws, "level") is None


@pytest.mark.parametrize("correlation", [0.99, 0.999])
def test_slow_chains_of_one_mode_are_not_taken_for_two(correlation: float) -> None:
    runs = [around(0, 0, 0, 0, seed=seed, correlation=correlation) for seed in range(30)]
    assert [find_modes(draws, "level") for draws in runs] == [None] * 30


def test_random_walks_are_not_taken_for_two_modes() -> None:
    walks = np.random.default_rng(3).normal(size=(100, 4, DRAWS)).cumsum(axis=2)
    assert [find_modes(walk, "level") for walk in walks] == [None] * 100
