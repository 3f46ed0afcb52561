"""The section about a rule for stopping: absent without one, and true about reasons, groups and missing values."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.blocks import ReportSettings
from bayesmesh.report.page import write_page
from bayesmesh.store.layout import ExperimentLayout

ROOT = Path(__file__).resolve().parents[3]

TEMPLATE = (ROOT / "src" / "bayesmesh" / "report" / "templates" / "stopping.html").read_text(encoding="utf-8")
MEASURED = TEMPLATE[TEMPLATE.index("A stopping rule biases") :].removesuffix("</p>\n")


def _look(draws: int, ess: float | None, r_hat: float | None, *, is_met: bool) -> dict[str, Any]:
    targets = [
        {"name": "min_ess_bulk", "target": 400.0, "value": ess, "where": "logits[0]", "is_met": (ess or 0) >= 400},
        {"name": "max_r_hat", "target": 1.01, "value": r_hat, "where": "logits[1]", "is_met": (r_hat or 9) <= 1.01},
        {"name": "max_mcse.bias<es>", "target": 0.1, "value": 0.05, "where": "bias<es>", "is_met": True},
    ]
    return {"draws": draws, "seconds": 0.01, "is_met": is_met, "targets": targets}


def _stop(num_draws: int, reason: str = "met", **rule: Any) -> dict[str, Any]:
    looks = [_look(3, None, None, is_met=False), _look(num_draws, 523.4, 1.0042, is_met=reason == "met")]
    rule = {"draws": 2000, "max_seconds": None, **rule}
    return {
        "rule": rule, "looks": looks, "num_draws": num_draws, "reason": reason, "look_seconds": 0.5, "sampling_seconds": 50.0,
    }  # fmt: skip


@pytest.fixture
def write(minimal: Callable[..., ExperimentLayout]) -> Callable[..., tuple[ExperimentLayout, dict[str, Any]]]:
    """Return a function that writes manifests with what rules saw, and returns layout and configuration."""

    def write(*stops: Any, rule: Any = "some") -> tuple[ExperimentLayout, dict[str, Any]]:
        layout = minimal()
        for number, stop in enumerate(stops):
            path = layout.sampled(f"group-{number:03d}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"num_draws": 9, "stop": stop}))
        return layout, {"title": "A", "sampling": {"stop": rule, "chain_groups": max(1, len(stops))}}

    return write


def page(layout: ExperimentLayout, config: dict[str, Any]) -> str:
    path = write_page(layout, config, "A", "", None, ReportSettings())
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", path.read_text(encoding="utf-8"))))


def test_looks_targets_cost_and_what_was_measured_are_shown(write: Callable[..., Any]) -> None:
    layout, config = write(_stop(1234))
    text = page(layout, config)
    assert "ended at 1,234 draws per chain: the look at 1,234 draws met every target" in text
    assert "Bulk ESS ≥ 400.0" in text
    assert "MCSE of bias<es> ≤ 0.1000" in text
    assert "523.40 ✓ 1.0042 ✓ 0.050000 ✓ 10.0 ms met" in text
    assert "3 not a number not a number 0.050000 ✓ 10.0 ms not met" in text
    assert "took 500 ms (1.0% of the time for the draws)" in text
    assert MEASURED in text
    raw = layout.page.read_text(encoding="utf-8")
    assert raw.count('aria-label="Bulk ESS at each look, target 400"') == 1
    assert 'href="#stopping"' in raw
    assert "bias<es>" not in raw, "names come from models"
