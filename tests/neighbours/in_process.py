"""Sample an example in this process: the model is checked as `compile` does, and there are no files but its shards."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import programs
from bayesmesh.config.blocks import DataSettings
from bayesmesh.config.registry import resolve_component
from bayesmesh.data.base import Dataset
from bayesmesh.data.sharding import shard
from bayesmesh.data.views import WholeShards, prepared
from bayesmesh.sampling.checks.model import check_model
from bayesmesh.store.layout import DataLayout
from cases import Case
from posteriors.judging import run


def sample_here(
    model: Mapping[str, Any], data: Mapping[str, np.ndarray], folder: Path, dtype: str, num_draws: int
) -> dict[str, np.ndarray]:
    """Return latent or deterministic -> (chain, draw, ...)."""
    name, options = model["name"], {k: v for k, v in model.items() if k != "name"}
    model_class, own = resolve_component("model", name, options)
    layout = DataLayout(folder, "data", "all")
    shard(Dataset(dict(data)), DataSettings(), layout)
    prepare, is_whole = functools.partial(model_class.prepare, own), model_class.reads_whole(own)
    shards = WholeShards(layout.shards, prepare) if is_whole else prepared(layout.shards, prepare)
    case = Case(name, "data", model_class, own, shards.spec(dtype), shards.read_rows(0, shards.num_rows))
    check_model(model_class, own, case.spec)
    built = programs.build(
        case, "nuts", num_chains=4, num_warmup=num_draws, most_draws=num_draws, row_tile=case.spec.num_rows,
        initial={"method": "auto"},
    )  # fmt: skip
    draws = run(built, num_draws, seed=3).draws
    rows = {k: jax.numpy.asarray(v) for k, v in case.rows.items()}
    derived = jax.jit(jax.vmap(jax.vmap(lambda z: case.model.deterministics(z, rows))))(draws)
    return {k: np.swapaxes(np.asarray(v), 0, 1) for k, v in {**derived, **draws}.items()}
