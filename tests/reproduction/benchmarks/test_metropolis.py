"""The benchmark metropolis: the results of its contenders, and rates and ratios from their times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bayesmesh_reproduction.benchmarks import metropolis
from bayesmesh_reproduction.benchmarks.harness import Case, Limits, Measurement, Options, compare
from bayesmesh_reproduction.benchmarks.history import write_rows
from bayesmesh_reproduction.benchmarks.metropolis import with_numpy
from bayesmesh_reproduction.benchmarks.metropolis.states import keep_states, write_moments
from bayesmesh_reproduction.benchmarks.metropolis.target import (
    LOCATIONS,
    MEAN,
    SCALES,
    VARIANCE,
    WEIGHTS,
    cdf,
    density,
)
from bayesmesh_reproduction.claims.declaration import CLAIMS
from bayesmesh_reproduction.claims.judge import FAILED, HOLDS, judge_all
from bayesmesh_reproduction.layout import BenchmarkLayout


def test_the_target_has_the_declared_moments() -> None:
    assert pytest.approx(0.92) == MEAN
    assert pytest.approx(9.7016) == VARIANCE
    x = np.linspace(-60, 60, 200_001)
    heights = density(x, np.exp) / math.sqrt(2 * math.pi)
    assert np.trapezoid(heights, x) == pytest.approx(1)
    assert np.trapezoid(x * heights, x) == pytest.approx(MEAN)
    assert np.trapezoid(heights[x <= 1], x[x <= 1]) == pytest.approx(cdf(1.0), abs=1e-4)


def test_the_published_density_is_the_harmonic_mean_of_its_components() -> None:
    contender = with_numpy.Published()
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


def _verdicts(results: Path) -> dict[str, str]:
    found = judge_all(results, tuple(c for c in CLAIMS if c.name == "A1"))
    return {f.number.name: f.verdict for f in found if not f.number.name.startswith("seconds")}


def _store_kernels(results: Path) -> None:
    """Run both scales, and store the moments."""
    folder = results / "states"
    folder.mkdir()
    both = {"published": (0.1, [metropolis.PUBLISHED[2], metropolis._OURS]), "adapted": (6.3, metropolis.CORRECT[::3])}
    cases = [
        Case(metropolis._case("kernels", 10_000, 1_000, scale), keep_states(who, folder, word))
        for word, (scale, who) in both.items()
    ]
    assert {m.status for m in compare(cases, Limits(rounds=1))} == {"ok"}
    write_moments(BenchmarkLayout(results), folder)


def test_moments_of_the_kernels_hold_and_a_wrong_one_fails(tmp_path: Path) -> None:
    _store_kernels(tmp_path)
    assert set(_verdicts(tmp_path).values()) == {HOLDS}
    saved = tmp_path / "states" / "adapted ours.npy"
    # The walk without the accept step.
    np.save(saved, np.random.default_rng(0).normal(0, 6.3 * math.sqrt(1_000), 10_000))
    write_moments(BenchmarkLayout(tmp_path), tmp_path / "states")
    failed = {name for name, verdict in _verdicts(tmp_path).items() if verdict == FAILED}
    assert failed == {"mean, adapted scale", "variance, adapted scale"} or failed == {"variance, adapted scale"}


def test_made_up_moments_fail(tmp_path: Path) -> None:
    states = tmp_path / "states"
    states.mkdir()
    for name in ("published ours", "adapted ours", "adapted numpy, correct", "published jax compiled loop"):
        np.save(states / f"{name}.npy", np.random.default_rng(0).normal(5, 1, 10_000))
    write_moments(BenchmarkLayout(tmp_path), states)
    row = {"mean_se": 0.01, "variance_se": 0.1, "scale": "adapted", "contender": "ours"}
    write_rows(BenchmarkLayout(tmp_path).table("metropolis-moments"), [{**row, "mean": 0.92, "variance": 9.70}])
    found = _verdicts(tmp_path)
    assert found["mean, adapted scale"] == found["variance, adapted scale"] == FAILED


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
    monkeypatch.setattr(metropolis, "write_moments", lambda *a: None)
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
    # All contenders for a thousand chains or more: six sizes of samples, with one more contender, and four of chains.
    assert len([r for r in outcome.ratios if r.least == 1.0]) == 6 * 6 + 4 * 5
    assert {c["scale"] for c in asked if c["arm"] == "adapted"} == {6.3}


def test_an_accelerator_adds_rows_and_is_compared_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def measure(cases: list[Case], limits: Limits) -> list[Measurement]:
        asked.extend(cases)
        return [Measurement(case.values, c.name, seconds=[1.0]) for case in cases for c in case.contenders]

    monkeypatch.setattr(metropolis, "compare", measure)
    monkeypatch.setattr(metropolis, "list_platforms", lambda: {"cpu": "cpu", "gpu": "cuda"})
    monkeypatch.setattr(metropolis, "write_moments", lambda *a: None)
    outcome = metropolis.run(Options())
    of_sweep = next(case for case in asked if case.values["arm"] == "chains").contenders
    platforms = {c.name: c.variables.get("JAX_PLATFORMS") for c in of_sweep}
    assert (platforms["numpy"], platforms["ours"], platforms["ours on gpu"]) == (None, "cpu", "cuda")
    assert "numpy on gpu" not in platforms
    pairs = {(r.contender, r.against) for r in outcome.ratios}
    assert ("ours on gpu", "jax compiled loop on gpu") in pairs
    assert ("ours", "jax compiled loop on gpu") not in pairs
    assert ("ours on gpu", "ours on gpu") not in pairs
