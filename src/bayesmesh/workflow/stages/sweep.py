"""sweep: compare the members of a sweep on one page."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from bayesmesh.errors import ConfigError, suggest
from bayesmesh.report.sweep_page import write_sweep
from bayesmesh.store.layout import SweepLayout
from bayesmesh.store.records.jobs import record_outputs
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.stages.report import describe, digests_of


def run(arguments: argparse.Namespace) -> int:
    """Write the page and the table of a sweep from the results of its members, and return the exit code.

    Raises:
        ConfigError: there is no such sweep, or no member has a quantity that it names.
    """
    plan, name = Plan(asked=None), arguments.sweep
    if name not in plan.sweeps:
        raise plan.broken.get(name) or ConfigError(f"no sweep '{name}'", suggest(name, plan.sweeps))
    sweep, results = plan.sweeps[name], Path(plan.results)
    pages = {member: describe(plan, member) for member in sweep.members}
    inputs = digests_of(results, (plan.layout(member).page for member in sweep.members))
    layout = SweepLayout(results, name)
    page = write_sweep(layout, sweep, pages)
    record_outputs(results, name, "comparison", [layout.table, layout.page], arguments.code or "", inputs)
    logging.getLogger("bayesmesh").info("sweep %s: %s", name, page)
    return 0
