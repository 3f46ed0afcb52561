"""shard: decode a dataset, check its counts, hold out what is asked for, write row shards."""

from __future__ import annotations

from bayesmesh.config.data_settings import DataSettings
from bayesmesh.data.sharding import shard
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.ledger import Ledger
from bayesmesh.stages.context import make_source
from bayesmesh.stages.experiment_files import data_layout

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Shard; returns a line for the log."""
    layout, data = data_layout(spec), spec.config["data"]
    with ledger.phase("decode"):
        dataset = make_source(spec).read(layout.records)
    with ledger.phase("shard"):
        settings = DataSettings.model_validate({k: data[k] for k in DataSettings.model_fields})
        manifest = shard(dataset, settings, layout)
    counts = ", ".join(f"{k} {v}" for k, v in manifest["counts"].items())
    return f"{data['source']}: {counts}; fingerprint {manifest['fingerprint'][:12]}"
