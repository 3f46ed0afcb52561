"""The manifest of a chain group tells of every run that made draws for it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.kernels.base import Statistic
from bayesmesh.store.chains.segments import ChainStore
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.ledger import Ledger
from bayesmesh.workflow.jobs import Job, make_job
from bayesmesh.workflow.stages.sample import _state_time, _write_manifest


@pytest.fixture
def spec(tmp_path: Path) -> Job:
    config = {
        "title": "Some", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
        "sampling": {"draws": 6},
    }  # fmt: skip
    return make_job("sample", "some", experiment_class().model_validate(config), str(tmp_path))


def test_a_change_of_environment_stays_recorded_when_later_runs_are_back_at_home(tmp_path: Path, spec: Job) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    store = ChainStore(layout.group("0123456789abcdef", 0), 4, {"identity": "0123456789abcdef", "environment": {}})
    for start, changed in ((0, []), (2, ["kind: cpu then, H200 now"]), (4, [])):
        values = {"sample_stats": {"diverging": np.zeros((2, 4), bool)}}
        facts = {"count": 2, "acceptance": 0.5 + start / 10, "divergences": 1, "step_size": 0.1}
        store.commit("sample", start, values, {"x": np.zeros(1)}, {**facts, "changed_environment": changed})
    kernel = SimpleNamespace(
        is_adjusted=True, statistics={"lp": Statistic("nat", "Log density.")}, are_population=lambda num_chains: False
    )
    program = SimpleNamespace(num_reported=4, num_chains=4, kernel=kernel)
    _write_manifest(spec, 0, program, store, 6, None)
    manifest = json.loads(layout.sampled("group-000").read_text())
    assert manifest["changed_environment"] == ["kind: cpu then, H200 now"]
    assert (manifest["committed_draws"], manifest["num_draws"], manifest["divergences"]) == (6, 6, 3)
    assert manifest["acceptance"] == pytest.approx(0.7)


def _stated(folder: Path, runs: list[tuple[str, int, int]], num_draws: int) -> list[tuple[str, float, int, str]]:
    """Return the rows of sampling after runs of (phase, first iteration, count), each of a second per iteration."""
    store = ChainStore(folder, 4, {"identity": "one"})
    for phase, start, count in runs:
        values = {f"{'warmup_' if phase == 'warmup' else ''}sample_stats": {"lp": np.zeros((count, 2))}}
        facts = {"count": count, "seconds": float(count), "gradients": 10 * count}
        store.commit(phase, start, values, {"x": np.zeros(1)}, facts)
    ledger = Ledger(folder / "ledger.json", "sample-group-000")
    ledger.add("sample", 1234.0, detail="of this attempt")
    _state_time(ledger, store.commits(), num_draws)
    return [(row["phase"], row["seconds"], row["gradients"], row["detail"]) for row in ledger.rows]


def test_the_time_of_draws_is_that_of_a_run_in_an_empty_folder(tmp_path: Path) -> None:
    """Whether one attempt made them, several killed ones, or one that went on beyond them."""
    clean = _stated(tmp_path / "clean", [("warmup", 0, 3), ("sample", 0, 4), ("sample", 4, 2)], 6)
    assert clean == [("warmup", 3.0, 30, "3 iterations"), ("sample", 6.0, 60, "6 iterations")]
    killed = [
        ("warmup", 0, 1),
        ("warmup", 1, 2),
        ("sample", 0, 2),
        ("sample", 2, 2),
        ("sample", 4, 1),
        ("sample", 5, 1),
    ]
    assert _stated(tmp_path / "killed", killed, 6) == clean
    longer = [("warmup", 0, 3), ("sample", 0, 4), ("sample", 4, 4), ("sample", 8, 3)]
    assert _stated(tmp_path / "longer", longer, 6) == clean
