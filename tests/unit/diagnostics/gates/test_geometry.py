"""A latent along which chains drift, or on which the scale of others depends, is named where a posterior misses its gates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from bayesmesh.diagnostics.gates.geometry import (
    FEWEST_COORDINATES,
    LEAST_SPREAD,
    complete_gates,
    drift_gate,
    fall_of_density,
    funnel_gate,
    judge_funnel,
    rank_correlations,
)
from bayesmesh.diagnostics.verdict import GateResult

SHAPE = 4, 500


def drifting(scale: float = LEAST_SPREAD) -> tuple[np.ndarray, np.ndarray]:
    """Log densities of ten normal latents, nats, and random walks along an eleventh that the density does not know."""
    random = np.random.default_rng(3)
    others = random.standard_normal((*SHAPE, 10))
    return -0.5 * np.square(others).sum(axis=-1), scale * random.standard_normal(SHAPE).cumsum(axis=1)


@pytest.mark.parametrize("outcome", ["fail", "warn"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_latent_that_nothing_bounds_is_named(outcome: str, dtype: type) -> None:
    lp, draws = drifting()
    offset = np.stack([draws, 2 * draws, np.zeros(SHAPE)], axis=-1).astype(dtype)
    gate = drift_gate(lp.astype(dtype), [(["a", "b", "c"], offset)], outcome)
    assert (gate.name, gate.where, gate.verdict, gate.severity) == ("drift", "b", outcome, outcome)
    assert "also along 1 more" in gate.message
    assert gate.value == pytest.approx(offset[..., 1].std(), rel=1e-4)


def test_what_has_bounds_is_not_named() -> None:
    """However far it reaches, and however slowly it moves; and near 0, slow latents are the matter of other gates."""
    lp, draws = drifting()
    settled = 1e6 * np.random.default_rng(4).standard_normal(SHAPE)
    assert drift_gate(lp, [(["settled"], settled[..., None])], "fail") is None
    bounded = lp - 0.5 * np.square((draws - np.median(draws)) / draws.std())
    assert drift_gate(bounded, [(["slow"], draws[..., None])], "fail") is None
    assert drift_gate(lp, [(["near"], drifting(1e-3)[1][..., None])], "fail") is None
    overflowing = np.where(np.arange(SHAPE[1]) == 7, np.inf, draws)
    assert drift_gate(lp, [(["overflowing"], overflowing[..., None])], "fail") is None


@pytest.mark.parametrize("num_latents", [1, 100])
def test_the_density_of_a_normal_distribution_falls_by_as_much_with_any_number_of_latents(num_latents: int) -> None:
    draws = np.random.default_rng(5).standard_normal((*SHAPE, num_latents))
    lp = -0.5 * np.square(draws).sum(axis=-1)
    assert fall_of_density(lp, draws[..., 0]) == pytest.approx(1.07, abs=0.1 + 0.02 * num_latents**0.5)


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
