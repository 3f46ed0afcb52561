"""A run that ends by a rule, from its configuration to its page; cut, killed, lowered and raised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr

STOP = {"min_ess_bulk": 150, "max_r_hat": 1.1, "first_look": 20, "growth": 1.3}

STOPPED = {
    "title": "Stopped",
    "data": {"source": "gaussian"},
    "model": {"name": "gaussian"},
    "kernel": {"name": "hmc", "num_leapfrog_steps": 2, "initial_step_size": 0.1},
    "sampling": {
        "mode": "independent", "chains": 8, "chain_groups": 2, "warmup": 200, "draws": 500, "segment_seconds": 0.02, "seed": 20261121, "initial": {"method": "mode"},
        "stop": STOP,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def stopped(fresh: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a workspace in which an experiment with a rule has run; nobody may change it."""
    workspace = fresh(tmp_path_factory.mktemp("stopped") / "copy")
    for path in (workspace.root / "config" / "experiments").iterdir():
        path.unlink()
    (workspace.root / "config" / "config.yaml").write_text("experiments: [stopped]\n")
    workspace.experiment("stopped").write_text(yaml.safe_dump(STOPPED))
    done = workspace.snakemake("--cores", "2", "results/stopped/report.html")
    assert done.returncode == 0, done.stderr[-4000:]
    return workspace


def _stops(workspace: Any) -> list[dict[str, Any]]:
    """What the manifests of both groups say of the rule."""
    folder = workspace.results / "stopped" / "chains"
    return [json.loads((folder / f"group-00{group}.json").read_text())["stop"] for group in (0, 1)]


def _decisions(workspace: Any) -> list[Any]:
    """The same without what was timed."""
    return [
        (s["num_draws"], s["reason"], [(k["draws"], k["is_met"], k["targets"]) for k in s["looks"]])
        for s in _stops(workspace)
    ]


def _means(workspace: Any) -> np.ndarray:
    return np.asarray(
        zarr.open_group(str(workspace.results / "stopped" / "posterior.zarr"), mode="r")["posterior/mean"]
    )


def _sample(workspace: Any) -> None:
    done = workspace.snakemake("--cores", "2", "results/stopped/posterior.sha256")
    assert done.returncode == 0, done.stderr[-4000:]


def test_each_group_stops_by_itself_and_the_posterior_keeps_the_fewest_draws(stopped: Any) -> None:
    stops = _stops(stopped)
    assert [s["reason"] for s in stops] == ["met", "met"]
    assert all(20 < s["num_draws"] < 500 for s in stops)
    for group, stop in enumerate(stops):
        (path,) = stopped.results.glob(f"stopped/chains/*/group-00{group}/looks.json")
        assert json.loads(path.read_text()) == stop
    fewest = min(s["num_draws"] for s in stops)
    assert _means(stopped).shape == (8, fewest, 2)
    root = zarr.open_group(str(stopped.results / "stopped" / "posterior.zarr"), mode="r")
    told = json.loads(root.attrs["stop"])
    assert told["rule"] == {**stops[0]["rule"]}
    assert [told["groups"][f"group-00{g}"]["num_draws"] for g in (0, 1)] == [s["num_draws"] for s in stops]
    verdict = json.loads((stopped.results / "stopped" / "diagnostics" / "verdict.json").read_text())
    assert verdict["num_draws"] == fewest


def test_draws_are_committed_at_every_look(stopped: Any) -> None:
    for group, stop in enumerate(_stops(stopped)):
        markers = [
            json.loads(p.read_text())
            for p in stopped.results.glob(f"stopped/chains/*/group-00{group}/commits/sample-*")
        ]
        begun = {facts["first_new"] for marker in markers for facts in (marker["facts"], *marker["earlier"])}
        looks = [look["draws"] for look in stop["looks"]]
        assert set(looks[:-1]) <= begun, "a commit ended there, and the next one begins"


def test_the_page_shows_why_and_what_it_costs(stopped: Any) -> None:
    page = (stopped.results / "stopped" / "report.html").read_text()
    assert "When sampling stopped" in page
    assert f"ended at {min(s['num_draws'] for s in _stops(stopped))} draws per chain" in page
    assert "Each of 2 chain groups stopped by itself" in page
    assert "biases the statistics that it monitors" in page
    ledger = (stopped.results / "stopped" / "ledger.csv").read_text()
    assert ledger.count(",look,") == 2


def test_a_raised_target_extends_the_chains_and_a_lowered_one_cuts_them(stopped: Any, tmp_path: Path) -> None:
    workspace = stopped.copy(tmp_path / "copy")
    workspace.set("stopped", "sampling.stop.min_ess_bulk", 300)
    planned = workspace.planned("results/stopped/posterior.sha256")
    assert planned == ["Assemble the posterior of stopped", "Sample stopped, group-000", "Sample stopped, group-001"]
    _sample(workspace)
    before, after = _means(stopped), _means(workspace)
    assert after.shape[1] > before.shape[1]
    np.testing.assert_array_equal(after[:, : before.shape[1]], before)
    commits = sorted(path.name for path in workspace.results.glob("stopped/chains/*/*/commits/*.json"))
    workspace.set("stopped", "sampling.stop.min_ess_bulk", 150)
    _sample(workspace)
    assert _decisions(workspace) == _decisions(stopped)
    np.testing.assert_array_equal(_means(workspace), before)
    assert sorted(path.name for path in workspace.results.glob("stopped/chains/*/*/commits/*.json")) == commits
