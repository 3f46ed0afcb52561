"""fetch: bring a dataset's files into place and verify them."""

from __future__ import annotations

from bayesmesh.data.fetch import fetch
from bayesmesh.experiment.experiment import component_options
from bayesmesh.experiment.stages import StageSpec
from bayesmesh.ledger import Ledger
from bayesmesh.stages.context import make_source
from bayesmesh.stages.files import data_layout

__all__ = ["run"]


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Fetch; returns a line for the log."""
    data = spec.config["data"]
    with ledger.phase("fetch"):
        manifest = fetch(
            make_source(spec), {"name": data["source"], **component_options("source", data)}, data_layout(spec)
        )
    return f"{data['source']}: {manifest['origin'].get('origin', 'fetched')}"
