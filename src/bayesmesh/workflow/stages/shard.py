"""shard: decode a dataset, check its counts, hold out rows or cells, and write row shards."""

from __future__ import annotations

import inspect

from bayesmesh.data.sharding import shard
from bayesmesh.errors import DataError
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.machine import available_memory, limited_memory
from bayesmesh.workflow.components import Component
from bayesmesh.workflow.jobs import Job


def run(job: Job, ledger: Ledger, source: Component) -> str:
    """Shard the dataset and return a line for the log.

    Raises:
        DataError: the source's arrays are not valid, or do not fit into memory.
    """
    layout, available = job.data_layout, available_memory()
    source_class, options = source
    try:
        with limited_memory(available):
            with ledger.phase("decode"):
                dataset = source_class(options).read(layout.records)
            with ledger.phase("shard"):
                manifest = shard(dataset, job.data, layout)
    except MemoryError as error:
        raise DataError(
            f"source '{job.data.source}' with these options does not fit into memory: {(available or 0) / 2**30:.1f} GiB"
            f" are available here. {error}",
            "ask for fewer rows or columns in the key 'data', or use a machine or a job with more memory",
        ) from error
    except DataError as error:
        remedy = error.remedy or f"correct the options in the key 'data', or `read` in {inspect.getfile(source_class)}"
        raise DataError(f"source '{job.data.source}': {error.message}", remedy) from error
    counts = ", ".join(f"{k} {v}" for k, v in manifest["counts"].items())
    return f"{job.data.source}: {counts}; fingerprint {manifest['fingerprint'][:12]}"
