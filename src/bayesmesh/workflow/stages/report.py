"""report: write the page of an experiment, and the index of all pages."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from bayesmesh.config.declarations import read_image_shape
from bayesmesh.diagnostics.verdict import read_verdict
from bayesmesh.errors import StoreError
from bayesmesh.report.analysis_sections import RequestedAnalysis
from bayesmesh.report.index import IndexedPage, IndexedSweep, write_index
from bayesmesh.report.provenance import describe_project
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.records.jobs import check_output, record_outputs
from bayesmesh.workflow.components import requested_analyses
from bayesmesh.workflow.jobs import Job
from bayesmesh.workflow.overhead import add_ends
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import Condition, condition_of


def run(job: Job, ledger: Ledger, analyses: Sequence[RequestedAnalysis]) -> str:
    """Write the page and return a line for the log."""
    # The index needs no figures, and importing matplotlib takes longer than writing it.
    from bayesmesh.report.page import write_page

    settings, layout = job.settings("report"), job.layout
    add_ends(ledger, os.environ)
    with ledger.phase("report"):
        title, counts = job.settings("title"), job.data_layout.sharded
        project, shape = describe_project(Path.cwd()), read_image_shape(job.data.source)
        page = write_page(layout, job.config, title, settings.caption, counts, settings, project, analyses, shape)
    # Nearly the last line of a run, so that a failure shows here and not only on the page.
    return f"{page}, verdict {read_verdict(layout.verdict).verdict}"


def run_index(arguments: argparse.Namespace) -> int:
    """Write the index of existing pages and return the exit code."""
    plan = Plan(asked=None)
    for error in (plan.broken[name] for name in plan.run.experiments if name in plan.broken):
        raise error
    described = {name: describe(plan, name) for name in plan.experiments}
    shown = {n: page for n, page in described.items() if page.get("damage") or plan.layout(n).page.exists()}
    sweeps: list[IndexedSweep] = [
        {
            "sweep": name, "title": sweep.title, "category": sweep.category,
            "members": [described[each] for each in sweep.members],
        }
        for name, sweep in plan.sweeps.items()
        if sweep.members.keys() & shown
    ]  # fmt: skip
    members = plan.shown_by_others()
    results = Path(plan.results)
    named = (*(name for name in shown if name not in members), *(each["sweep"] for each in sweeps))
    inputs = digests_of(results, map(plan.page, named))
    index = write_index(results, [page for name, page in shown.items() if name not in members], sweeps)
    record_outputs(results, "", "index", [index], arguments.code or "", inputs)
    logging.getLogger("bayesmesh").info("index: %s", index)
    return 0


def digests_of(results: Path, pages: Iterable[Path]) -> dict[str, str]:
    """Return page, relative to the results -> digest; a page of several names a damaged or missing one, and is not made from it."""
    inputs: dict[str, str] = {}
    for page in pages:
        with contextlib.suppress(StoreError):
            inputs[page.relative_to(results).as_posix()] = check_output(results, page)
    return inputs


def describe(plan: Plan, name: str) -> IndexedPage:
    """Return what the index shows about an experiment besides its numbers."""
    experiment, condition = plan.experiments[name], _condition(plan, name)
    return {
        "experiment": name, "title": experiment.title, "category": experiment.report.category,
        "analyses": requested_analyses(experiment.requested_analyses(), plan.file(name)), "damage": condition.damage, "older": condition.older,
    }  # fmt: skip


def _condition(plan: Plan, name: str) -> Condition:
    """Return the condition of an experiment; files that cannot be read are damage, and stop no other experiment."""
    try:
        # Raises if the folder cannot be read, also where no job has left a record.
        plan.layout(name).page.exists()
        return condition_of(plan.jobs_of(name))
    except StoreError as error:
        return Condition(error.message)
    except OSError as error:
        return Condition(f"{error.filename}: cannot be read: {error.strerror}")
