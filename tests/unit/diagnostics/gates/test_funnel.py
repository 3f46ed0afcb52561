"""A latent on which the scale of others depends is named, where a posterior misses its gates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.diagnostics.gates.funnel import (
    FEWEST_COORDINATES,
    complete_gates,
    funnel_gate,
    judge_funnel,
    rank_correlations,
)
from bayesmesh.diagnostics.verdict import GateResult

SHAPE = 4, 500


def funnel(num_scaled: int = 9, *, is_centred: bool = True) -> tuple[np.ndarray, list[tuple[list[str], np.ndarray]]]:
    """Log densities, nats, and draws of a log scale and of what it scales."""
    random = np.random.default_rng(5)
    v, z = 3 * random.standard_normal(SHAPE), random.standard_normal((*SHAPE, num_scaled))
    lp = stats.norm.logpdf(v, scale=3) + stats.norm.logpdf(z).sum(axis=-1)
    x = np.exp(v / 2)[..., None] * z if is_centred else z
    if is_centred:
        lp = lp - num_scaled * v / 2
    return lp, [(["v"], v[..., None]), ([f"x[{i}]" for i in range(num_scaled)], x)]


@pytest.mark.parametrize("outcome", ["fail", "warn"])
def test_a_funnel_is_named_by_its_scale(outcome) -> None:
    gate = funnel_gate(*funnel(), outcome)
    assert (gate.name, gate.where, gate.verdict, gate.severity) == ("funnel", "v", outcome, outcome)
    assert "the log density falls with v (rank correlation -0.9" in gate.message
    assert "non-centred" in gate.message


def test_a_chain_that_is_stuck_in_the_neck_does_not_hide_the_funnel() -> None:
    lp, blocks = funnel()
    for values in (lp, *(draws for _, draws in blocks)):
        values[2] = values[2, :1]
    gate = funnel_gate(lp, blocks, "fail")
    assert gate is not None
    assert gate.where == "v"
    assert np.isnan(rank_correlations(lp[2:3], blocks[0][1][2:3])).all()


def test_chains_that_disagree_are_not_a_funnel() -> None:
    """A mean that differs between chains says nothing: the correlation is within them."""
    lp, blocks = funnel(is_centred=False)
    assert funnel_gate(lp, blocks, "fail") is None
    apart = 10 * np.arange(4)[:, None]
    assert funnel_gate(lp + apart, [(names, draws + apart[..., None]) for names, draws in blocks], "fail") is None


@pytest.mark.parametrize(("share", "names"), [(0.05, ["funnel", "divergences"]), (0.9, ["divergences"])])
def test_where_most_trajectories_diverge_no_funnel_is_named(share: float, names: list[str]) -> None:
    missed = GateResult(
        name="divergences", limit=0.0, direction="at most", value=share, where="", severity="fail", verdict="fail", found="",
    )  # fmt: skip
    assert [result.name for result in judge_funnel([missed], *funnel())] == names


def test_few_latents_and_constant_ones_are_not_a_funnel() -> None:
    lp = funnel()[0]
    few = [(["v"] * (FEWEST_COORDINATES - 1), np.repeat(lp[..., None], FEWEST_COORDINATES - 1, axis=-1))]
    assert funnel_gate(lp, few, "fail") is None
    assert funnel_gate(lp, [(["c"] * 5, np.ones((*SHAPE, 5)))], "fail") is None
    assert funnel_gate(lp, [], "fail") is None


def test_correlations_are_those_of_scipy() -> None:
    lp, blocks = funnel()
    found = rank_correlations(lp, blocks[1][1])
    expected = [
        np.median([stats.spearmanr(lp[c], blocks[1][1][c, :, i]).statistic for c in range(4)]) for i in range(9)
    ]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("place", [0, 2])
def test_no_funnel_is_looked_for_where_draws_are_not_finite_or_in_several_modes(place: int) -> None:
    missed = GateResult(
        name="r_hat", limit=1.01, direction="at most", value=2.0, where="", severity="fail", verdict="fail", found="",
    )  # fmt: skip
    found = [None, None, None]
    found[place] = missed.model_copy(update={"name": "finite" if place == 0 else "modes"})
    lp, blocks = funnel()
    assert [r.name for r in complete_gates([missed], found, None, lp, lambda: blocks)] == [found[place].name, "r_hat"]
