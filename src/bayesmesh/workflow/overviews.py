"""Pages of several experiments: the index of all, and the comparison of the members of a sweep."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from bayesmesh.config.experiment import ExperimentBase, RunSettings
from bayesmesh.config.sweep import Sweep
from bayesmesh.store.layout import ExperimentLayout, SweepLayout
from bayesmesh.workflow.job_files import Job
from bayesmesh.workflow.reruns import why_lost

_log = logging.getLogger("bayesmesh")


class Wildcards(Protocol):
    """Wildcards of a job: an experiment, or a dataset and perhaps a split."""

    experiment: str

    def items(self) -> Iterable[tuple[str, str]]: ...


class Overview:
    """The part of `Plan` that concerns these pages; `Plan` sets the attributes below."""

    results: str
    workflow: Any
    run: RunSettings
    experiments: Mapping[str, ExperimentBase]
    sweeps: dict[str, Sweep]
    refits: dict[str, tuple[str, ...]]

    def layout(self, name: str) -> ExperimentLayout:
        """Return the files of an experiment."""
        raise NotImplementedError

    def code_of(self, stage: str) -> str:
        """Return the version of a stage."""
        raise NotImplementedError

    def is_unchecked(self, job: Job) -> bool:
        """Return whether work is being planned and this is the first query about a job."""
        raise NotImplementedError

    def force(self, job: Job, why: str) -> None:
        """Make a job run, and say why."""
        raise NotImplementedError

    def page(self, name: str) -> Path:
        """Return the page of an experiment, or that of a sweep."""
        return SweepLayout(Path(self.results), name).page if name in self.sweeps else self.layout(name).page

    def members_of(self, names: Iterable[str]) -> set[str]:
        """Return experiments, and the members of those that are sweeps."""
        return {each for name in names for each in (self.sweeps[name].members if name in self.sweeps else [name])}

    def member_pages(self, sweep: str) -> list[Path]:
        """Return the pages of the members of a sweep, and check once whether its own results are as they were left."""
        layout = SweepLayout(Path(self.results), sweep)
        self._check_other(Job("comparison", sweep, layout.results, (), (layout.table, layout.page), layout.table))
        return [self.layout(name).page for name in self.sweeps[sweep].members]

    def sweep_settings(self, sweep: str) -> str:
        """Return the settings for the page of a sweep, as JSON."""
        return json.dumps(self.sweeps[sweep]._asdict())

    @property
    def sweep_pattern(self) -> str:
        """Regular expression that matches the names of sweeps."""
        return "|".join(map(re.escape, self.sweeps)) or "(?!)"

    def indexed(self) -> list[Path]:
        """Return the pages that the index needs: of the listed experiments, and existing pages of others."""
        there = [n for n in self._shown() if os.path.exists(self.page(n))]
        pages = [self.page(n) for n in sorted({*self.run.experiments, *there})]
        index = Path(self.results, "index.html")
        # Snakemake asks for no input of a file that exists: an index that `refresh_index` wrote would hide what has failed or is new.
        missing = next((f"{page} is missing" for page in pages if index.exists() and not page.exists()), "")
        self._check_other(Job("index", "", index.parent, (), (index,), index), missing)
        return pages

    def titles(self) -> str:
        """Return names, titles and categories of the indexed experiments, as JSON."""
        indexed = self.indexed()
        shown = {n: [e.title, e.report.category] for n, e in self.experiments.items() if self.page(n) in indexed}
        swept = {n: [s.title, s.category] for n, s in self.sweeps.items() if self.page(n) in indexed}
        return json.dumps(shown | swept)

    def _shown(self) -> list[str]:
        """Return the experiments and sweeps that the index shows."""
        return sorted({*self.experiments, *self.sweeps} - self.shown_by_others())

    def shown_by_others(self) -> set[str]:
        """Return the members of sweeps, which the sweep's page shows, and the refits, which are shown with their experiment."""
        return self.members_of(self.sweeps) | {name for names in self.refits.values() for name in names}

    def _check_other(self, job: Job, missing: str = "") -> None:
        """Make a job outside of the flow run again if its results are not as it left them, or something is missing in them."""
        if self.is_unchecked(job) and (why := why_lost(job) or missing):
            self.force(job, why)

    def refresh_index(self) -> None:
        """Write the index if pages have changed without it: a run of one experiment does not request it."""
        index, others = Path(self.results, "index.html"), Path(self.results).glob("*/index.html")
        pages = [*map(self.page, (*self.experiments, *self.sweeps)), *others]
        times = [os.stat(page).st_mtime_ns for page in pages if os.path.exists(page)]
        if not self.workflow.is_main_process or not times:
            return
        if os.path.exists(index) and os.stat(index).st_mtime_ns >= max(times):
            return
        command = ["bayesmesh", "index", "--code", self.code_of("report"), "--log", f"{self.results}/logs/index.log"]
        if subprocess.run(command, check=False).returncode:
            _log.warning("%s was not refreshed; the lines above say why", index)
