"""An experiment on a table with given latents as its posterior, as the stages would leave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.experiment import experiment_class
from bayesmesh.data.sharding import shard
from bayesmesh.store.arrays import open_group, write_array
from bayesmesh.store.hashes import write_hashes
from bayesmesh.store.layout import CHAIN, DRAW
from bayesmesh.workflow.components import component_of
from bayesmesh.workflow.jobs import Job, make_job, write_spec
from recording import record_as


def store_experiment(
    table: pd.DataFrame, model: Mapping[str, Any], latents: Mapping[str, np.ndarray], **data: Any
) -> Job:
    """Write ``old.csv`` and the results of an experiment `old` into the working folder, and return its job of `assemble`.

    Args:
        table: rows of the experiment.
        model: options of `glm`.
        latents: name -> (chain, draw, ...).
        data: further keys of `data`.
    """
    table.to_csv("old.csv", index=False)
    config = {
        "title": "Old", "data": {"source": "table", "files": "old.csv", **data}, "model": {"name": "glm", **model},
        "kernel": {"name": "nuts"}, "compute": {"dtype": "float64"},
    }  # fmt: skip
    spec = make_job("assemble", "old", experiment_class().model_validate(config), "results")
    source_class, options = component_of(spec, "source")
    source = source_class(options)
    spec.data_layout.records.mkdir(parents=True)
    source.fetch(spec.data_layout.records)
    shard(source.read(spec.data_layout.records), DataSettings(), spec.data_layout)
    group = open_group(spec.layout.posterior, "w").create_group("posterior")
    for name, values in latents.items():
        write_array(group, name, values, (CHAIN, DRAW, *(f"{name}_{i}" for i in range(values.ndim - 2))))
    write_hashes(spec.layout.posterior, {})
    outputs = [spec.layout.posterior, spec.layout.posterior_hashes]
    record_as(Path("results"), "old", "assemble", outputs, specification=spec.digest)
    # The experiment has other settings by now, which count for nothing until it runs.
    config["sampling"] = {"draws": 7}
    for each in (make_job("assemble", "old", experiment_class().model_validate(config), "results"), spec):
        write_spec(each)
    return spec
