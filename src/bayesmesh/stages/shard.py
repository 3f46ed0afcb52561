"""shard: decode a dataset, check its counts, hold out rows or cells, and write row shards."""

from __future__ import annotations

from bayesmesh.data.sharding import shard
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.ledger import Ledger


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Shard the dataset and return a line for the log."""
    layout = spec.data_layout
    source, options = spec.component("source")
    with ledger.phase("decode"):
        dataset = source(options).read(layout.records)
    with ledger.phase("shard"):
        manifest = shard(dataset, spec.data, layout)
    counts = ", ".join(f"{k} {v}" for k, v in manifest["counts"].items())
    return f"{spec.data.source}: {counts}; fingerprint {manifest['fingerprint'][:12]}"
