"""Constant chains fail, stuck ones are a warning, and discrete or short ones are neither."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.diagnostics.gates.chains import Movement

CHAINS, DRAWS = 4, 401


def drawn(*event: int) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(CHAINS, DRAWS, *event))


def gate_of(*blocks: np.ndarray):
    movement = Movement()
    for block in blocks:
        movement.add(block)
    return movement.gate()


def test_chains_that_move_in_any_coordinate_miss_nothing() -> None:
    discrete = np.zeros((CHAINS, DRAWS, 2), int)
    assert gate_of(discrete, drawn(1)) is None
    assert gate_of(drawn(3), discrete) is None
    lazy = np.random.default_rng(5).random((CHAINS, DRAWS, 1)) < 0.05
    assert gate_of(np.cumsum(lazy, axis=1)) is None, "a walk that accepts one proposal of twenty"
    assert Movement().gate() is None
    assert gate_of(drawn(1)[:, :1]) is None, "a single draw"


def test_a_constant_chain_fails_and_is_named() -> None:
    one, other = drawn(2), drawn(3)
    one[2], other[2] = one[2, 0], other[2, 0]
    found = gate_of(one, other)
    assert (found.name, found.verdict, found.value, found.where) == ("movement", "fail", 1.0, "chain 2")
    assert found.message == "1 chain does not move: chain 2 is constant over all 401 draws"
    other[2, 200:] = 7.0
    assert gate_of(one, other).verdict == "warn"
    other[2, 199:] = drawn(3)[2, 199:]
    assert gate_of(one, other) is None, "half of the draws"


@pytest.mark.parametrize(("start", "stop", "is_stuck"), [(0, 201, True), (150, 351, True), (200, 400, False)])
def test_a_chain_at_one_point_for_more_than_half_of_the_draws_is_a_warning(start, stop, is_stuck) -> None:
    draws = drawn(2)
    draws[1, start:stop] = draws[1, start]
    found = gate_of(draws)
    assert (found is not None) == is_stuck
    if found is not None:
        assert (found.verdict, found.where) == ("warn", "chain 1")
        assert f"chain 1 stays at one point from draw {start} to draw {stop - 1}" in found.message
