"""fetch: download a dataset's files and verify them."""

from __future__ import annotations

import inspect

from bayesmesh.config.settings import file_options
from bayesmesh.data.fetching import fetch
from bayesmesh.errors import ConfigError
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.machine import limited_memory
from bayesmesh.store.records.files import is_of_mirror
from bayesmesh.workflow.components import Component
from bayesmesh.workflow.jobs import Job

LEAST_MEMORY = 3 * 2**28
"""Memory that files of any size may take, in bytes."""


def run(job: Job, ledger: Ledger, source: Component) -> str:
    """Fetch the dataset and return a line for the log."""
    source_class, options = source
    if unseen := file_options(options).keys() - {key.removeprefix("data.") for key in job.input_files().patterns}:
        option = min(unseen)
        raise ConfigError(
            f"{inspect.getfile(source_class)}: its class Options has no option '{option}' of the type Files, but its instances do",
            f"write `{option}: Files` in that class: a change of these files would not be noticed",
        )
    with ledger.phase("fetch"):
        identity = {"name": job.data.source, **options.model_dump(mode="json")}
        # Those of a mirror are compared with published checksums, and may be absent from one run to the next.
        files = {name: path for name, path in job.input_files().find().items() if not is_of_mirror(name)}
        # Blocks of files are small: a file that takes far more than its size expands as no data do.
        size = sum(path.stat().st_size for path in files.values())
        with limited_memory(LEAST_MEMORY + 64 * size if job.data.source in ("table", "arrays") else None):
            manifest = fetch(source_class(options), identity, job.data_layout, files)
    return f"{job.data.source}: {manifest['origin'].get('origin', 'fetched')}"
