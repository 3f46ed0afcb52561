"""The section on what was learned: what it shows of few and of many coordinates, and when it says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bayesmesh.config.blocks import GateSettings
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.diagnostics.verdict import Verdict
from bayesmesh.report.diagnostics_tables import read_summary
from bayesmesh.report.draws import DrawReader
from bayesmesh.report.learned.section import Learned, build_learned
from bayesmesh.store.arrays import open_group, write_array, write_texts
from bayesmesh.store.layout import ExperimentLayout

Build = Callable[..., tuple[Learned, Verdict]]
LEVELS = 60


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write a posterior of two coefficients and effects of many levels, and build the section."""

    def make(*, is_stuck: bool = False, truth: dict[str, np.ndarray] | None = None) -> tuple[Learned, Verdict]:
        rng = np.random.default_rng(11)
        b = rng.normal([3.0, 0.0], [0.5, 40.0], (4, 300, 2))
        effects = np.linspace(-3, 3, LEVELS) + 0.5 * rng.normal(size=(4, 300, LEVELS))
        if is_stuck:
            b[0] += 90
        layout = ExperimentLayout(tmp_path, "one")
        root = open_group(layout.posterior, "w")
        root.attrs["shown"] = [
            {"name": "b", "heading": "Coefficients", "reference": 0.0, "apart": []},
            {"name": "effects", "heading": "Effects of site", "reference": 0.0, "apart": []},
        ]
        lp = -rng.chisquare(9, (4, 300))
        for group, arrays in (
            ("summaries", {"b": b}), ("posterior", {"effects": effects, "unused": b[..., :1]}), ("sample_stats", {"lp": lp})
        ):  # fmt: skip
            for name, values in arrays.items():
                dims = ("chain", "draw", *(f"{name}_dim_{k}" for k in range(values.ndim - 2)))
                write_array(root.require_group(group), name, values, dims)
        root["sample_stats"].attrs["statistics"] = []
        for name, values in (truth or {}).items():
            write_array(root.require_group("truth"), name, values, [f"{name}_dim_0"])
        verdict = diagnose(layout.posterior, GateSettings(), layout)
        coordinates = read_summary(layout.summary, verdict.num_coordinates.summaries)
        found = build_learned(coordinates, verdict, DrawReader(layout.posterior))
        assert found is not None
        return found, verdict

    return make


def test_effects_of_levels_are_in_another_unit_in_natural_order_with_their_rows(tmp_path: Path) -> None:
    levels = ["site 1", "site 10", "site 2"]
    effects = np.random.default_rng(3).normal([1.0, 2.0, 3.0], 0.1, (4, 300, 3))
    layout = ExperimentLayout(tmp_path, "one")
    root = open_group(layout.posterior, "w")
    root.attrs["described"] = {"scales": {"effects_site": 50.0}, "meanings": {"effects_site": "what sites add"}}
    root.attrs["level_rows"] = {"site": {"site 1": 7, "site 10": 8, "site 2": 9}}
    root.attrs["shown"] = [{"name": "effects_site", "heading": "Effects of site", "reference": 0.0, "apart": []}]
    write_array(root.require_group("posterior"), "effects_site", effects, ("chain", "draw", "site"))
    write_texts(root["posterior"], "site", levels, ["site"])
    write_array(root.require_group("summaries"), "b", effects[..., 0], ("chain", "draw"))
    write_array(root.require_group("sample_stats"), "lp", effects[..., 0], ("chain", "draw"))
    root["sample_stats"].attrs["statistics"] = []
    verdict = diagnose(layout.posterior, GateSettings(), layout)
    coordinates = read_summary(layout.summary, verdict.num_coordinates.summaries)
    found = build_learned(coordinates, verdict, DrawReader(layout.posterior))
    assert found is not None
    (shown,) = found.findings
    assert [each.item.names for each in shown.rows] == ["site 1", "site 2", "site 10"]
    assert [shown.level_rows[each.item.label] for each in shown.rows] == [7, 9, 8]
    assert [each.item.mean for each in shown.rows] == pytest.approx([50, 150, 100], rel=0.02)
    for each, place in zip(shown.rows, (0, 2, 1), strict=True):
        of_draws = 50 * effects[..., place]
        assert (each.low, each.high) == pytest.approx([np.quantile(of_draws, q) for q in (0.05, 0.95)])
        assert each.item.mcse_mean == pytest.approx(of_draws.std() / np.sqrt(1200), rel=0.3)
    assert found.meanings == [("effects_site", "what sites add")]


def test_a_run_that_failed_is_not_to_be_trusted_and_nothing_is_said(build: Build) -> None:
    found, verdict = build(is_stuck=True)
    assert verdict.verdict == "fail"
    assert "do not trust these numbers" in found.trust
    assert [each.sentences for each in found.findings] == [[], []]
    assert len(found.findings[0].unsettled) == 2
