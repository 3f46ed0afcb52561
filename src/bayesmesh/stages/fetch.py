"""fetch: download a dataset's files and verify them."""

from __future__ import annotations

from bayesmesh.data.fetching import fetch
from bayesmesh.planning.plan_specs import StageSpec
from bayesmesh.running.run_ledger import Ledger


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Fetch the dataset and return a line for the log."""
    source, options = spec.component("source")
    with ledger.phase("fetch"):
        identity = {"name": spec.data.source, **options.model_dump(mode="json")}
        manifest = fetch(source(options), identity, spec.data_layout)
    return f"{spec.data.source}: {manifest['origin'].get('origin', 'fetched')}"
