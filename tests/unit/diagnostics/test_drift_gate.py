"""A latent along which chains drift is named, where a posterior misses its gates."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.diagnostics.drift_gate import FAR, drift_gate, fall_of_density
from bayesmesh.diagnostics.funnel_diagnostic import complete_gates
from bayesmesh.diagnostics.mode_gate import failed_by_modes
from bayesmesh.diagnostics.verdict import GateResult

SHAPE = 4, 500


def drifting(scale: float = FAR) -> tuple[np.ndarray, np.ndarray]:
    """Log densities of ten normal latents, nats, and random walks along an eleventh that the density does not know."""
    random = np.random.default_rng(3)
    others = random.standard_normal((*SHAPE, 10))
    return -0.5 * np.square(others).sum(axis=-1), scale * random.standard_normal(SHAPE).cumsum(axis=1)


def missed(name: str = "r_hat", verdict: str = "fail", found: str = "", notes: tuple[str, ...] = ()) -> GateResult:
    return GateResult(
        name=name, limit=1.01, direction="at most", value=2.0, where="", severity="fail", verdict=verdict, found=found,
        notes=notes, hint="run more draws",
    )  # fmt: skip


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


def test_other_gates_refer_to_a_drift_instead_of_more_draws() -> None:
    lp, draws = drifting()
    names = [
        missed("r_hat", "warn", "R-hat is 2", ("chance explains it",)),
        missed("ess_bulk"),
        missed("divergences"),
    ]
    found = complete_gates(names, (None, None, None), None, lp, lambda: [(["a"], draws[..., None])])
    assert [gate.name for gate in found] == ["drift", "r_hat", "ess_bulk", "divergences"]
    assert found[1].message == "R-hat is 2; this follows from the gate 'drift', whose remedy comes first"
    assert [gate.follows for gate in found] == ["", "drift", "drift", ""]


def test_a_drift_is_looked_for_where_chains_came_late_and_not_where_they_stay_in_modes() -> None:
    lp, draws = drifting()
    late, second = (failed_by_modes(1, "chain 2", "modes", is_second=is_second) for is_second in (False, True))
    for modes, expected in ((late, ["drift", "modes", "r_hat"]), (second, ["modes", "r_hat"])):
        found = complete_gates([missed()], (None, None, modes), None, lp, lambda: [(["a"], draws[..., None])])
        assert [gate.name for gate in found] == expected
    assert [g.name for g in complete_gates([missed(verdict="pass")], (None,) * 3, None, lp, list)] == ["r_hat"]
