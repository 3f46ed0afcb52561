"""`data.replicates` is refused with what there is for one dataset only: key, reason and remedy are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.loading import check_experiment
from bayesmesh.errors import ConfigError
from bayesmesh.workflow.specs import make_spec

EXPERIMENT: dict[str, Any] = {
    "title": "Many", "data": {"source": "table", "files": ["sites.csv"], "replicates": "site"},
    "model": {"name": "gaussian"}, "kernel": {"name": "hmc"},
}  # fmt: skip


def with_(block: str, values: Any) -> dict[str, Any]:
    return {**EXPERIMENT, block: {**EXPERIMENT.get(block, {}), **values}}


@pytest.mark.parametrize(
    ("block", "values", "key"),
    [
        ("sampling", {"stop": {"min_ess_bulk": 100}}, "sampling.stop"),
        ("sampling", {"initial": {"method": "model"}}, "sampling.initial.method"),
        ("compute", {"processes": 2}, "compute.processes"),
        ("compute", {"mesh": {"data": 2}}, "compute.mesh.data"),
        ("compute", {"sharding": "shard_map"}, "compute.sharding"),
        ("compute", {"row_tile": 8}, "compute.row_tile"),
        ("data", {"held_out_fraction": 0.2}, "data.replicates"),
        ("averaging", {}, "averaging"),
    ],
)
def test_what_needs_one_dataset_is_refused(block: str, values: Any, key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        check_experiment(Path("many.yaml"), with_(block, values))
    assert "many.yaml" in raised.value.message
    assert f"key '{key}'" in raised.value.message
    assert raised.value.remedy


def test_the_same_shards_serve_with_and_without_it() -> None:
    many = check_experiment(Path("many.yaml"), EXPERIMENT)
    one = check_experiment(Path("one.yaml"), with_("data", {"replicates": None}))
    for stage in ("fetch", "shard"):
        assert make_spec(stage, "many", many, "results").digest == make_spec(stage, "one", one, "results").digest
    assert make_spec("sample", "many", many, "results").digest != make_spec("sample", "one", one, "results").digest
