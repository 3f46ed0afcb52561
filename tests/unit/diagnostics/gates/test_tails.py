"""Summaries whose mean draws do not tell warn, and those with ordinary tails do not."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.diagnostics.gates.tails import LIMIT, HeavyTails


def look(draws: np.ndarray) -> HeavyTails:
    """Return what is found in draws (chain, draw) of one value."""
    found = HeavyTails()
    found.add(draws[..., None], ["value"], draws.mean(keepdims=True)[0], draws.std(keepdims=True)[0])
    return found


@pytest.mark.parametrize("num_draws", [1000, 4000])
@pytest.mark.parametrize("seed", range(5))
def test_ordinary_tails_pass(num_draws: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    shape = (4, num_draws)
    for draws in (
        random.normal(size=shape), random.exponential(size=shape), random.standard_t(5, size=shape), np.exp(random.normal(size=shape)),
        1 / random.gamma(5, size=shape), np.ones(shape), random.integers(0, 2, shape), np.exp(-random.normal(size=shape) ** 2),
    ):  # fmt: skip
        assert look(draws).gate() is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sign", [1, -1])
def test_tails_without_a_mean_are_named(seed: int, sign: int) -> None:
    """A Pareto distribution of index a has k = 1 / a; the posterior of the shape of a negative binomial may have k of 2.5."""
    random = np.random.default_rng(seed)
    for k, said in ((2.5, "does not converge"), (1.6, "does not converge")):
        gate = look(sign * (1e3 + random.pareto(1 / k, size=(4, 1000)))).gate()
        assert gate is not None
        assert (gate.name, gate.verdict, gate.where, gate.limit) == ("tails", "warn", "value", LIMIT)
        assert gate.value == pytest.approx(k, rel=0.35)
        assert said in gate.message
        assert "median" in gate.message


def test_draws_that_are_not_finite_are_left_to_their_own_gate() -> None:
    draws = np.random.default_rng(0).normal(size=(4, 100))
    draws[1, 5] = np.inf
    with np.errstate(invalid="ignore"):
        assert look(draws).gate() is None
