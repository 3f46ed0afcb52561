"""report: the page of an experiment, and the index of all pages."""

from __future__ import annotations

import os
from pathlib import Path

from bayesmesh.config.benchmark_settings import list_benchmarks
from bayesmesh.planning.specs import StageSpec
from bayesmesh.report.index import write_index
from bayesmesh.report.page import write_page
from bayesmesh.reproduction.pages.benchmark_page import write_benchmark_page
from bayesmesh.running.ledger import Ledger
from bayesmesh.running.overhead import add_ends
from bayesmesh.stages.experiment_files import data_layout, experiment_layout
from bayesmesh.stages.table_receipts import sign

__all__ = ["run", "run_benchmarks", "run_index"]


def run(spec: StageSpec, ledger: Ledger) -> str:
    """Write the page; returns a line for the log."""
    settings, layout = spec.settings("report"), experiment_layout(spec)
    add_ends(ledger, os.environ)
    with ledger.phase("report"):
        page = write_page(
            layout,
            spec.config,
            spec.config["title"],
            settings.caption,
            data_layout(spec).sharded,
            settings,
        )
    # Not the ledgers of the jobs: this job's own is written when it has ended.
    sign(spec, [layout.ledger])
    return str(page)


def run_index(results: Path, experiments: list[dict[str, str]]) -> Path:
    """Write the index; an experiment is a dict with its name as ``experiment``, and its title and category."""
    return write_index(results, experiments)


def run_benchmarks(results: Path) -> Path:
    """Write the page of those benchmarks that have run."""
    return write_benchmark_page(results, list_benchmarks().items())
