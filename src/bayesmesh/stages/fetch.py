"""fetch: download a dataset's files and verify them."""

from __future__ import annotations

from bayesmesh.data.fetching import fetch
from bayesmesh.planning.plan_specs import StageSpec
from bayesmesh.running.run_ledger import Ledger
from bayesmesh.store.seal_files import is_of_mirror


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Fetch the dataset and return a line for the log."""
    source, options = spec.component("source")
    with ledger.phase("fetch"):
        identity = {"name": spec.data.source, **options.model_dump(mode="json")}
        # Those of a mirror are compared with published checksums, and may be absent from one run to the next.
        files = {name: path for name, path in spec.input_files().find().items() if not is_of_mirror(name)}
        manifest = fetch(source(options), identity, spec.data_layout, files)
    return f"{spec.data.source}: {manifest['origin'].get('origin', 'fetched')}"
