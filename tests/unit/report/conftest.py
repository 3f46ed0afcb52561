"""Result folders to render: complete ones are written once a session and copied."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bayesmesh.store.arrays import open_group
from bayesmesh.store.layout import ExperimentLayout

GATE = {
    "name": "r_hat",
    "limit": 1.01,
    "direction": "at most",
    "value": 1.002,
    "where": "logits[0]",
    "severity": "fail",
}


@pytest.fixture(scope="session")
def demo() -> SimpleNamespace:
    """The functions of ``demo.py``."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("demo.py"))))


@pytest.fixture(scope="session")
def _complete(demo: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = ExperimentLayout(tmp_path_factory.mktemp("complete"), "everything")
    demo.write_everything(layout)
    demo.write_averaging(layout)
    demo.write_recommendations(layout)
    return layout.results


@pytest.fixture
def complete(_complete: Path, tmp_path: Path) -> ExperimentLayout:
    """A folder with every file that a page can show."""
    shutil.copytree(_complete, tmp_path / "results")
    return ExperimentLayout(tmp_path / "results", "everything")


@pytest.fixture
def minimal(tmp_path: Path) -> Callable[..., ExperimentLayout]:
    """Write a folder with nothing but an empty posterior, a verdict of one gate and a summary of one line."""

    def write(*, summary: str = "logits,0,,0.1,1.0,-1.5,1.7,0.02,1.002,900,800", **gate: Any) -> ExperimentLayout:
        layout = ExperimentLayout(tmp_path / "minimal", "small")
        layout.verdict.parent.mkdir(parents=True, exist_ok=True)
        open_group(layout.posterior, "w")
        entry = {**GATE, "verdict": "pass", "message": "", **gate}
        content = {
            "experiment": "small",
            "verdict": entry["verdict"],
            "gates": [entry],
            "num_chains": 4,
            "num_draws": 500,
            "num_coordinates": {"summaries": 1, "latents": 0, "listed": 1},
            "latents": {},
            "num_divergences": None,
            "divergence_share": None,
            "bfmi": [None] * 4,
            "acceptance_rate": None,
        }
        layout.verdict.write_text(json.dumps(content), encoding="utf-8")
        header = "variable,index,label,mean,sd,q5,q95,mcse_mean,r_hat,ess_bulk,ess_tail"
        layout.summary.write_text(f"{header}\n{summary}\n", encoding="utf-8")
        return layout

    return write
