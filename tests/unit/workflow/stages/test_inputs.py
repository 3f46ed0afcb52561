"""The data of a stage, as its model takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayesmesh.config.experiment import experiment_class
from bayesmesh.config.registry import resolve_component
from bayesmesh.data.sharding import shard
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, make_job
from bayesmesh.workflow.stages.inputs import bind
from cases import OPTIONS


def sharded(folder: Path, model: dict[str, Any]) -> Job:
    """Return the specification of an experiment with the simulated processes, which are sharded."""
    config = {"title": "A", "data": {"source": "hidden_markov"}, "model": model, "kernel": {"name": "hmc"}}
    spec = make_job("compile", "some", experiment_class().model_validate(config), str(folder))
    source_class, options = resolve_component("source", "hidden_markov", {})
    shard(source_class(options).read(folder), spec.data, spec.data_layout)
    return spec


@pytest.mark.parametrize(
    ("model", "lead"),
    [({"name": "hidden_markov"}, (70,)), ({"name": "log_density", **OPTIONS["log_density"]}, (1, 70))],
)
def test_rows_lie_as_the_model_takes_them(tmp_path: Path, model: dict[str, Any], lead: tuple[int, ...]) -> None:
    spec = sharded(tmp_path, model)
    model, data_spec, shards = bind(spec, component_of(spec, "model"))
    assert (shards.num_rows, data_spec.num_rows, shards.num_observations) == (lead[0], lead[0], 70)
    assert shards.read_rows(0, lead[0])["emissions"].shape == (
        *lead,
        *data_spec.fields["emissions"].shape[len(lead) - 1 :],
    )
    assert type(model).takes_all_rows == (lead == (1, 70))
