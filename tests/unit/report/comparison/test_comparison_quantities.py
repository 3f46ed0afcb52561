"""Quantities of several experiments side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bayesmesh.config.config_blocks import GateSettings
from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.report.comparison import comparison_quantities as module
from bayesmesh.report.comparison.comparison_quantities import read_shared
from bayesmesh.store.layout import DESCRIBED, ExperimentLayout
from bayesmesh.store.zarr_arrays import open_group, write_array


def write(results: Path, name: str, centre: float, quantities: tuple[str, ...]) -> ExperimentLayout:
    """Write a posterior of normal scalars, with its verdict."""
    rng, layout = np.random.default_rng(4), ExperimentLayout(results, name)
    root = open_group(layout.posterior, "w")
    for each in (*quantities, "log_density"):
        write_array(root.require_group("summaries"), each, rng.normal(centre, 1.0, (4, 250)), ("chain", "draw"))
    write_array(root.require_group("posterior"), "latent", rng.normal(size=(4, 250)), ("chain", "draw"))
    write_array(root.require_group("sample_stats"), "lp", rng.normal(size=(4, 250)), ("chain", "draw"))
    root["sample_stats"].attrs["statistics"] = []
    diagnose(layout.posterior, GateSettings(), layout)
    return layout


def test_common_findings_stand_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = [write(tmp_path, "one", 3.0, ("b", "c", "only")), write(tmp_path, "two", -5.0, ("b", "c"))]
    found = read_shared(layouts)
    assert found is not None
    assert [*found.rows] == ["b", "c"], "neither what one has alone nor the log density"
    (one, interval), (two, _) = found.rows["b"]
    assert (float(one.split(" ± ")[0]), float(two.split(" ± ")[0].replace("−", "-"))) == pytest.approx((3, -5), abs=0.2)
    low, high = map(float, interval.split(" to "))
    assert (low, high) == pytest.approx((3 - 1.645, 3 + 1.645), abs=0.3)
    assert found.verdicts == ["pass", "pass"]
    open_group(layouts[1].posterior, "a").attrs[DESCRIBED] = {"scales": {"b": 10.0}}
    first, (two, interval) = read_shared(layouts).rows["b"]
    numbers = [float(text.replace("−", "-")) for text in (two.split(" ± ")[0], *interval.split(" to "))]
    assert numbers == pytest.approx([-50, -66, -34], abs=3), "in the unit of the experiment's own page"
    assert first[0] == one
    monkeypatch.setattr(module, "MOST_SHARED", 1)
    assert read_shared(layouts).num_left_out == 1
    assert read_shared([*layouts, ExperimentLayout(tmp_path, "later")]) is None, "an experiment without a verdict"
