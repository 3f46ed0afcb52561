"""Run the stages of an experiment without Snakemake, with the same command and specification for each job.

A job is not run again if its results are unaltered and were made with the current settings and code. Jobs do not run in
this process, so neither the devices nor the precision of its JAX change a draw. Those of a single chain group share a
process and its imports; several chain groups are sampled side by side, each job in a process of its own.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayesmesh.config.declarations import has_refits, key_of
from bayesmesh.config.experiment import ExperimentBase
from bayesmesh.config.refit_settings import Refits
from bayesmesh.config.source_code import INSTALLED
from bayesmesh.errors import (
    ConfigError,
    DataError,
    DeviceError,
    NotFinished,
    PeerError,
    SamplingError,
    StoreError,
    UserError,
    last_error,
)
from bayesmesh.notebook.job_process import JobProcess
from bayesmesh.sampling.loop.progress import State, read_state
from bayesmesh.store.machine import usable_cores
from bayesmesh.workflow.code import stage_code
from bayesmesh.workflow.flow import analysis_of, stages_of
from bayesmesh.workflow.jobs import Job, later_stages, make_job, write_spec
from bayesmesh.workflow.reruns import is_made_with, why_lost

_POLL_SECONDS = 0.05

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"

_WARNING = re.compile(r"^\d\d:\d\d:\d\d warning: (.*)$", re.MULTILINE)
"""A log line that a reader of the results should know about."""

ERRORS = {
    cls.exit_code: cls
    for cls in (ConfigError, DataError, DeviceError, StoreError, PeerError, SamplingError, NotFinished)
}
"""Exit code of a job -> type of the error that it printed."""


class Planned(NamedTuple):
    """A job to run."""

    job: Job
    code: str

    @property
    def is_needed(self) -> bool:
        """Whether its results are missing, damaged, or made with something else."""
        job = self.job
        return not job.record.exists() or bool(why_lost(job)) or not is_made_with(job, self.code)


def plan(name: str, experiment: ExperimentBase, results: Path) -> list[list[Planned]]:
    """Return the jobs of an experiment, grouped by stage, in the order of the flow.

    Raises:
        ConfigError: an analysis reads other experiments, which only the workflow can run.
    """
    for analysis in experiment.requested_analyses():
        settings = experiment.analysis_settings(analysis) if has_refits(analysis) else None
        if experiment.named_experiments(analysis) or (isinstance(settings, Refits) and settings.left_out()):
            raise ConfigError(
                f"bayesmesh.sample: key '{key_of(analysis)}': only the workflow can make other experiments",
                "remove the key, or write config/experiments/NAME.yaml and run Snakemake",
            )
    planned = []
    for stage in stages_of(experiment):
        job = make_job(stage, name, experiment, results)
        code = stage_code(job)
        planned.append([Planned(each, code) for each in job.of_groups()])
    return planned


class StageRunner:
    """Runs jobs and shows their progress.

    Args:
        experiment: the experiment to run.
        cores: cores of this machine to use; all by default.
        path: folders for the Python path of the jobs, besides those of this process.
        bar: where progress is shown.
    """

    def __init__(self, experiment: ExperimentBase, cores: int | None, path: Sequence[str], bar: ProgressBar) -> None:
        self._experiment, self._bar = experiment, bar
        self._cores = cores or usable_cores()
        # Share the cores between the jobs of chain groups, as Snakemake does.
        self._threads = max(1, self._cores // experiment.sampling.chain_groups)
        # All jobs then have the same devices.
        self._is_shared = experiment.sampling.chain_groups == experiment.compute.processes == 1
        self._path = path

    def run(self, name: str, stages: Iterable[Sequence[Planned]]) -> None:
        """Run the jobs of each stage that are missing or out of date, stage after stage.

        Raises:
            UserError: a job failed; the message comes from the job.
            KeyboardInterrupt: the user interrupted; committed draws are kept.

        Warns:
            UserWarning: a job has logged a warning.
        """
        with contextlib.ExitStack() as held:
            idle: list[JobProcess] = []
            for number, jobs in enumerate(stages):
                self._bar.begin_stage(number, jobs[0].job.word)
                waiting = [planned for planned in jobs if planned.is_needed]
                try:
                    while waiting:
                        at_once = max(1, self._cores // self._threads) if waiting[0].job.group else 1
                        first, waiting = waiting[:at_once], waiting[at_once:]
                        running = idle or [held.enter_context(JobProcess(job_environment(self._path))) for _ in first]
                        self._run_together(name, first, running)
                        idle = running if self._is_shared else []
                finally:
                    # Warnings of jobs that are not run again are in their logs.
                    for log in (planned.job.log for planned in jobs):
                        pass_on_warnings(log.read_text(encoding="utf-8", errors="replace") if log.exists() else "")

    def _run_together(self, name: str, jobs: Sequence[Planned], processes: Sequence[JobProcess]) -> None:
        for planned, process in zip(jobs, processes, strict=True):
            process.start(self._words(name, planned))
        try:
            while any(process.poll() is None for process in processes):
                states = [read_state(process.progress) for process in processes]
                self._bar.show([state for state in states if state is not None])
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            _stop(processes)
            errors = [str(error.message) for error in _errors(name, jobs, processes)]
            reason = "; ".join(errors) or "its jobs had ended"
            raise KeyboardInterrupt(
                f"bayesmesh.sample: stopped during {jobs[0].job.word} of '{name}': {reason}. Committed draws are kept,"
                " and the same call continues."
            ) from None
        for error in _errors(name, jobs, processes):
            raise error

    def _words(self, name: str, planned: Planned) -> list[str]:
        """Return the arguments of a job, as in the rule of its stage."""
        job, analysis = planned.job, analysis_of(planned.job.stage)
        verb = analysis.command if analysis else job.stage
        words = [verb, "--spec", str(write_spec(job)), "--code", planned.code, "--log", str(job.log)]
        if job.stage in ("compile", "sample"):
            words += ["--cores", str(self._threads), "--processes", f"1x{self._experiment.compute.processes}"]
        elif job.stage in ("assemble", "diagnose") or analysis:
            words += ["--cores", str(self._cores)]
        if job.stage == "sample":
            words += ["--group", job.group]
        if job.stage == "compile":
            later = (make_job(each, name, self._experiment, job.results) for each in later_stages(self._experiment))
            words.append(f"--later={','.join(str(write_spec(each)) for each in later)}")
        return words


def _errors(name: str, jobs: Sequence[Planned], ended: Sequence[JobProcess]) -> Iterator[UserError]:
    """Yield the errors of those jobs that have failed."""
    for planned, process in zip(jobs, ended, strict=True):
        if process.returncode:
            yield error_of(planned, name, process.returncode, process.printed)


def pass_on_warnings(said: str) -> None:
    """Warn, at the caller's line outside this package, for each line of a job's output that begins with ``warning:``."""
    for warning in _WARNING.findall(said):
        warnings.warn(warning, stacklevel=2, skip_file_prefixes=(_PACKAGE,))


def _stop(running: Sequence[JobProcess]) -> None:
    """Ask jobs to stop and wait until they have committed; another Ctrl-C ends them at once.

    A terminal and Jupyter have already interrupted the jobs; other front ends interrupt only this process. SIGTERM may
    come twice.
    """
    for process in running:
        if process.poll() is None:
            process.stop()
    for process in running:
        process.poll(None)


def job_environment(path: Sequence[str]) -> dict[str, str]:
    """Return the environment of jobs: that of this process, with its Python path."""
    own = [os.path.abspath(entry) for entry in sys.path if not INSTALLED & set(Path(entry).parts)]
    kept = [entry for entry in own if os.path.isdir(entry) and not entry.startswith(sys.base_prefix + os.sep)]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    joined = os.pathsep.join(dict.fromkeys([*map(os.path.abspath, path), *kept, *given]))
    return {**os.environ, "PYTHONPATH": joined}


def error_of(planned: Planned, name: str, code: int, said: str) -> UserError:
    """Return the error that a job printed before it ended.

    Args:
        planned: the job.
        name: name of the experiment.
        code: exit code of the job; negative for a signal.
        said: output of the job.
    """
    found = last_error(said)
    if found is not None and code in ERRORS | {UserError.exit_code: UserError}:
        return ERRORS.get(code, UserError)(
            found.message.replace(f"config/experiments/{name}.yaml", "bayesmesh.sample"), found.remedy
        )
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    last = said.splitlines()[-1] if said else "it printed nothing"
    remedy = f"see {planned.job.log}, and call again to continue"
    return UserError(f"{planned.job.word} of '{name}' {how}: {last}", remedy)


class ProgressBar:
    """One bar for all stages of a call; a context manager.

    Args:
        num_stages: number of stages.
        is_shown: False for no bar; otherwise there is one in a notebook, and where stderr is a terminal.
    """

    def __init__(self, num_stages: int, *, is_shown: bool) -> None:
        self._bar: Any = None
        self._num_stages, self._stage = num_stages, ""
        if is_shown and (sys.stderr.isatty() or "ipykernel" in sys.modules):
            with warnings.catch_warnings():
                # Without the widgets package, a notebook shows the bar of a terminal.
                warnings.simplefilter("ignore")
                from tqdm.auto import tqdm
            self._bar = tqdm(total=num_stages, bar_format="{desc} |{bar}| {n_fmt} of {total_fmt} {unit}, {elapsed}")

    def begin_stage(self, number: int, stage: str) -> None:
        """Show that a stage begins, or that it is already complete."""
        self._stage = stage
        self._show(stage, number, self._num_stages, " stages")

    def show(self, states: Sequence[State]) -> None:
        """Show the progress of the running jobs; for chain groups, their sum."""
        if states:
            done, total = sum(s.done for s in states), sum(s.total for s in states)
            phase = states[0].label.rpartition(" ")[2]
            self._show(f"{self._stage}: {phase}", done, total, f"{states[0].unit}s")

    def _show(self, text: str, done: int, total: int, unit: str) -> None:
        if self._bar is not None:
            self._bar.total, self._bar.n, self._bar.unit = total, done, unit.strip()
            self._bar.set_description_str(text, refresh=False)
            self._bar.refresh()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._bar is not None:
            if raised[0] is None:
                self._show("done", self._num_stages, self._num_stages, " stages")
            self._bar.close()
