"""The manifest of a chain group tells of every run that made draws for it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.kernels.base import Statistic
from bayesmesh.planning.specs import StageSpec, make_spec
from bayesmesh.stages.sample import _write_manifest
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.store.segments import ChainStore


@pytest.fixture
def spec(tmp_path: Path) -> StageSpec:
    config = {
        "title": "Some", "data": {"source": "gaussian"}, "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
        "sampling": {"draws": 6},
    }  # fmt: skip
    return make_spec("sample", "some", experiment_class().model_validate(config), str(tmp_path))


def test_a_change_of_environment_stays_recorded_when_later_runs_are_back_at_home(
    tmp_path: Path, spec: StageSpec
) -> None:
    layout = ExperimentLayout(tmp_path, "some")
    store = ChainStore(layout.group("0123456789abcdef", 0), 4, {"identity": "0123456789abcdef", "environment": {}})
    for start, changed in ((0, []), (2, ["kind: cpu then, H200 now"]), (4, [])):
        values = {"sample_stats": {"diverging": np.zeros((2, 4), bool)}}
        facts = {"count": 2, "acceptance": 0.5 + start / 10, "divergences": 1, "step_size": 0.1}
        store.commit("sample", start, values, {"x": np.zeros(1)}, {**facts, "changed_environment": changed})
    program = SimpleNamespace(
        num_reported=4, kernel=SimpleNamespace(statistics={"lp": Statistic("nat", "Log density.")})
    )
    _write_manifest(spec, 0, program, store, None)
    manifest = json.loads(layout.sampled("group-000").read_text())
    assert manifest["changed_environment"] == ["kind: cpu then, H200 now"]
    assert (manifest["committed_draws"], manifest["num_draws"], manifest["divergences"]) == (6, 6, 3)
    assert manifest["acceptance"] == pytest.approx(0.7)
