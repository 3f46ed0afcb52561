"""The benchmark metropolis: what its contenders compute, and what is made of their times."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from bayesmesh.benchmarks import metropolis
from bayesmesh.benchmarks.harness import Case, Limits, Measurement, Options, compare
from bayesmesh.benchmarks.metropolis import plain
from bayesmesh.benchmarks.metropolis.target import LOCATIONS, MEAN, SCALES, VARIANCE, WEIGHTS, cdf, density


def test_the_target_has_the_moments_that_it_says() -> None:
    assert pytest.approx(0.92) == MEAN
    assert pytest.approx(9.7016) == VARIANCE
    x = np.linspace(-60, 60, 200_001)
    heights = density(x, np.exp) / math.sqrt(2 * math.pi)
    assert np.trapezoid(heights, x) == pytest.approx(1)
    assert np.trapezoid(x * heights, x) == pytest.approx(MEAN)
    assert np.trapezoid(heights[x <= 1], x[x <= 1]) == pytest.approx(cdf(1.0), abs=1e-4)


def test_the_published_density_is_the_harmonic_mean_of_its_components() -> None:
    contender = plain.Published()
    contender.prepare({"chains": 1, "samples": 1, "scale": 0.1, "keeps_means": False})
    x = np.array([-3.0, 0.0, 4.0])
    parts = [
        np.exp(-0.5 * ((x - m) / s) ** 2) / (s * math.sqrt(2 * math.pi)) for m, s in zip(LOCATIONS, SCALES, strict=True)
    ]
    harmonic = 1 / sum(w / part for w, part in zip(WEIGHTS, parts, strict=True))
    np.testing.assert_allclose(np.exp(contender._log_density(x)), harmonic, rtol=1e-12)


def test_every_contender_runs_and_correct_ones_agree() -> None:
    case = metropolis._case("kernels", 2_000, 60, 6.0, keeps_means=True)
    fast = [c for c in (*metropolis.PUBLISHED[:3], *metropolis.CORRECT) if c.name != metropolis.TFP]
    measured = compare([Case(case, fast)], Limits(rounds=1))
    assert [m.status for m in measured] == ["ok"] * len(fast), [m.message for m in measured]
    found = {m.contender: m.facts for m in measured}
    for name in ("numpy, correct", "jax compiled loop, correct", "ours"):
        # Independent chains: 2,000 last states have a mean within some 0.07.
        assert found[name]["mean"] == pytest.approx(MEAN, abs=0.35)
        assert found[name]["variance"] == pytest.approx(VARIANCE, rel=0.2)
        assert 2_000 < found[name]["ess"] < 120_000
    for name in ("numpy", "jax compiled loop", "jax step by step"):
        assert found[name]["variance"] < 0.5 * VARIANCE, "the published density has no tails"
    assert found["ours"]["compile_s"] > 0 == found["numpy"]["compile_s"]


def test_rows_have_rates_and_ratios_their_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def measure(cases: list[Case], limits: Limits) -> list[Measurement]:
        asked.extend(dict(case.values) for case in cases)
        found = []
        for case in cases:
            for contender in case.contenders:
                seconds = {"ours": 0.5, "numpy": 100.0}.get(contender.name, 2.0)
                facts = {"scale_found": 6.3, "compile_s": 1.5, "ess": 40.0}
                found.append(Measurement(case.values, contender.name, seconds=[seconds] * 3, facts=facts))
        return found

    monkeypatch.setattr(metropolis, "compare", measure)
    monkeypatch.setattr(metropolis, "list_platforms", lambda: {"cpu": "cpu"})
    outcome = metropolis.run(Options())
    arms = {
        arm: {(c["chains"], c["samples"]) for c in asked if c["arm"] == arm} for arm in ("samples", "chains", "gate")
    }
    assert arms["samples"] == {(1_000, 10**n) for n in range(7)}
    assert arms["chains"] == {(10**n, 1_000) for n in range(7)}
    assert arms["gate"] == {(100_000, 1_000), (1_000_000, 100)}
    row = next(r for r in outcome.rows if r["arm"] == "chains" and r["chains"] == 10**6 and r["contender"] == "ours")
    assert (row["steps_per_s"], row["with_compile_s"], row["ess_per_s"]) == (2e9, 2.0, 80.0)
    gated = [r for r in outcome.ratios if r.least == metropolis.GATE]
    assert [(r.against, r.ratio, r.verdict) for r in gated] == [("numpy", 200.0, "holds")] * 2
    # Everyone, wherever there are a thousand chains or more: six sizes of samples, with one contender more, four of chains.
    assert len([r for r in outcome.ratios if r.least == 1.0]) == 6 * 6 + 4 * 5
    assert {c["scale"] for c in asked if c["arm"] == "adapted"} == {6.3}


def test_an_accelerator_adds_rows_and_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def measure(cases: list[Case], limits: Limits) -> list[Measurement]:
        asked.extend(cases)
        return [Measurement(case.values, c.name, seconds=[1.0]) for case in cases for c in case.contenders]

    monkeypatch.setattr(metropolis, "compare", measure)
    monkeypatch.setattr(metropolis, "list_platforms", lambda: {"cpu": "cpu", "gpu": "cuda"})
    outcome = metropolis.run(Options())
    of_sweep = next(case for case in asked if case.values["arm"] == "chains").contenders
    platforms = {c.name: c.variables.get("JAX_PLATFORMS") for c in of_sweep}
    assert (platforms["numpy"], platforms["ours"], platforms["ours on gpu"]) == (None, "cpu", "cuda")
    assert "numpy on gpu" not in platforms
    pairs = {(r.contender, r.against) for r in outcome.ratios}
    assert ("ours on gpu", "jax compiled loop on gpu") in pairs
    assert ("ours", "jax compiled loop on gpu") not in pairs
    assert ("ours on gpu", "ours on gpu") not in pairs
