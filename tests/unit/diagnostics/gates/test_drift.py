"""A latent along which chains drift is named, where a posterior misses its gates."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.diagnostics.gates.drift import FAR, drift_gate, fall_of_density

SHAPE = 4, 500


def drifting(scale: float = FAR) -> tuple[np.ndarray, np.ndarray]:
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
