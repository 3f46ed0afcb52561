"""Pages of several experiments: the index of all, and the comparison of the members of a sweep."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from pathlib import Path

from bayesmesh.workflow.plan import Plan

_log = logging.getLogger("bayesmesh")


def member_pages(plan: Plan, sweep: str) -> list[Path]:
    """Return the pages of the members of a sweep."""
    return [plan.layout(name).page for name in plan.sweeps[sweep].members]


def sweep_settings(plan: Plan, sweep: str) -> str:
    """Return the settings for the page of a sweep, as JSON."""
    return json.dumps(plan.sweeps[sweep]._asdict())


def sweep_pattern(plan: Plan) -> str:
    """Regular expression that matches the names of sweeps."""
    return "|".join(map(re.escape, plan.sweeps)) or "(?!)"


def indexed_pages(plan: Plan) -> list[Path]:
    """Return the pages that the index needs: of the listed experiments, and existing pages of others."""
    shown = {*plan.experiments, *plan.sweeps} - plan.shown_by_others()
    there = [n for n in shown if os.path.exists(plan.page(n))]
    return [plan.page(n) for n in sorted({*plan.run.experiments, *there})]


def index_settings(plan: Plan) -> str:
    """Return names, titles and categories of the indexed experiments, as JSON."""
    pages = indexed_pages(plan)
    shown = {n: [e.title, e.report.category] for n, e in plan.experiments.items() if plan.page(n) in pages}
    swept = {n: [s.title, s.category] for n, s in plan.sweeps.items() if plan.page(n) in pages}
    return json.dumps(shown | swept)


def refresh_index(plan: Plan) -> None:
    """Write the index if pages have changed without it: a run of one experiment does not request it."""
    index, others = Path(plan.results, "index.html"), Path(plan.results).glob("*/index.html")
    pages = [*map(plan.page, (*plan.experiments, *plan.sweeps)), *others]
    times = [os.stat(page).st_mtime_ns for page in pages if os.path.exists(page)]
    if not plan.workflow.is_main_process or not times:
        return
    if os.path.exists(index) and os.stat(index).st_mtime_ns >= max(times):
        return
    command = ["bayesmesh", "index", "--code", plan.code_of("report"), "--log", f"{plan.results}/logs/index.log"]
    if subprocess.run(command, check=False).returncode:
        _log.warning("%s was not refreshed; the lines above say why", index)
