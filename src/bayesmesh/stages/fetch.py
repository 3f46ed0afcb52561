"""fetch: bring a dataset's files into place and verify them."""

from __future__ import annotations

from bayesmesh.config.experiment import component_options
from bayesmesh.data.fetching import fetch
from bayesmesh.planning.specs import StageSpec
from bayesmesh.running.ledger import Ledger
from bayesmesh.stages.context import make_source
from bayesmesh.stages.experiment_files import data_layout

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Fetch; returns a line for the log."""
    data = spec.config["data"]
    with ledger.phase("fetch"):
        manifest = fetch(
            make_source(spec), {"name": data["source"], **component_options("source", data)}, data_layout(spec)
        )
    return f"{data['source']}: {manifest['origin'].get('origin', 'fetched')}"
