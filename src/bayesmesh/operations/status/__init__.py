"""Show the progress of every experiment in one table, read from the store and the queue."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from bayesmesh.analyses.figures import formats
from bayesmesh.config.blocks import SamplingSettings
from bayesmesh.diagnostics.verdict import Verdict, read_verdict
from bayesmesh.errors import NOT_AGAIN, StoreError, UserError, explain_os_error, last_error
from bayesmesh.files import read_json
from bayesmesh.operations.status.chains import (
    FEWEST_DRAWS,
    GroupProgress,
    current_groups,
    log_density_so_far,
    read_group,
)
from bayesmesh.report.fit_badge import FitBadge, read_fit
from bayesmesh.store.chains.manifests import GroupManifest, read_manifest
from bayesmesh.store.layout import ExperimentLayout
from bayesmesh.workflow.plan import Plan
from bayesmesh.workflow.reruns import Condition, condition_of
from bayesmesh.workflow.slurm.queue import QueuedJob, read_queue

EVERY_SECONDS = 5.0

_HOME_AND_CLEAR = "\x1b[H\x1b[J"

HEADER = (
    "experiment", "state", "fit", "chains", "draws", "per s", "left", "accept", "R-hat", "ESS", "divergences", "where",
    "last commit",
)  # fmt: skip
"""Draws are per chain; R-hat and ESS are the worst values of the gates or, marked `~`, those of the log density."""

REASONS = {"met": "rule met", "seconds": "time up", "draws": "limit"}
"""Reason for which a rule ended sampling -> text shown beside the draws."""

_TAIL_BYTES = 2**16
"""Number of bytes at the end of a log that contain its error; before it, a long run has a line every few seconds."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """State of an experiment, read from its files.

    Attributes:
        groups: chain groups that have begun.
        num_draws: draws per chain if all groups have finished, else None.
        reason: why a rule ended sampling; empty without a rule.
        verdict: verdict of the gates on these draws; None if missing, damaged, or about other draws.
        condition: condition of the results.
        failed: first job whose last attempt failed, and its error; empty strings where none has.
        fit: what the page says about the fit of the model; None without a verdict.
    """

    groups: Sequence[GroupProgress]
    num_draws: int | None
    reason: str
    verdict: Verdict | None
    condition: Condition
    failed: tuple[str, str] = ("", "")
    fit: FitBadge | None = None

    @property
    def phase(self) -> str:
        return "sample" if any(g.phase == "sample" for g in self.groups) else "warmup"


def run(arguments: argparse.Namespace) -> int:
    """Print the table, or keep showing it; returns the exit code."""
    plan = Plan()
    if arguments.watch:
        watch(lambda: status_table(plan))
    else:
        print(status_table(plan))
    return 0


def watch(table: Callable[[], str], *, every: float = EVERY_SECONDS, out: TextIO | None = None) -> None:
    """Show a table repeatedly until Ctrl-C, or once if the output is not a terminal.

    Args:
        table: returns the text of the table.
        every: seconds between refreshes.
        out: output stream; standard output by default.
    """
    out = sys.stdout if out is None else out
    if not out.isatty():
        print(table(), file=out)
        return
    try:
        while True:
            # Compute before clearing, so that the screen is never empty.
            text = table()
            print(
                f"{_HOME_AND_CLEAR}{text}\n\n{time.strftime('%H:%M:%S')}, refreshed every {every:.0f} s, Ctrl-C ends",
                file=out,
            )
            out.flush()
            time.sleep(every)
    except KeyboardInterrupt:
        print(file=out)


def status_table(plan: Plan, now: float | None = None) -> str:
    """Return one line per experiment that has begun or is listed, and the path of the report.

    Read-only. The column `draws` shows "done/requested", the latter from the configuration. An experiment with a
    damaged or unreadable file, of results or of code, is `unreadable`. That file, chains in trouble and a queue that does not answer are named
    below the table.
    """
    now = time.time() if now is None else now
    queue = read_queue(plan.experiments, Path.cwd())
    rows: list[tuple[str, ...]] = [HEADER]
    notes: list[str] = []
    errors: list[str] = []
    listed = plan.members_of(plan.run.experiments)
    for name in plan.experiments:
        try:
            if name in listed or plan.layout(name).folder.exists():
                standing = _standing(plan, name, condition_of(plan.jobs_of(name)))
                fit = read_fit(plan.layout(name).page) if standing.verdict is not None else None
                standing = dataclasses.replace(standing, failed=failed_job(plan, name), fit=fit)
                rows.append(_row(plan, name, standing, queue.jobs.get(name, []), now))
                notes += [f"{name} {g.folder.name}: {g.trouble}" for g in standing.groups if g.trouble]
                errors += _explain_condition(name, standing.condition)
                errors += [line for doubt in (fit.doubts if fit else ()) for line in ("", f"{name}: {doubt}")]
                errors += ["", f"{name}: {' failed: '.join(standing.failed)}"] if standing.failed[0] else []
        except (UserError, OSError) as error:
            # Show the other experiments regardless.
            rows.append((name, "unreadable", *["-"] * (len(HEADER) - 2)))
            errors += ["", f"{name}: {_explain(error)}"]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    if any("~" in cell for row in rows for cell in row):
        lines += ["", "~ of the log density alone, over committed draws; the gates assess all summaries"]
    if notes:
        lines += ["", *notes]
    if queue.failure:
        # Otherwise a waiting job would look like one that was never submitted.
        lines += ["", f"queue: {queue.failure}"]
    index = Path(plan.results) / "index.html"
    report = f"report: {index.resolve()}" if index.exists() else "report: not written yet"
    return "\n".join([*lines, *errors, "", report])


def _explain_condition(name: str, condition: Condition) -> list[str]:
    if condition.damage:
        remedy = f"run snakemake, which makes it again; `bayesmesh verify {name}` lists all damage"
        return ["", f"{name}: {StoreError(condition.damage, remedy)}"]
    older = f"{name}: older than the configuration, its code or its inputs: {condition.older}"
    return ["", older] if condition.older else []


def _explain(error: UserError | OSError) -> UserError:
    if isinstance(error, UserError):
        return error
    return explain_os_error(error) or StoreError(f"{error.filename}: {error.strerror}", "restore it, or move it away")


def _standing(plan: Plan, name: str, condition: Condition) -> Standing:
    layout, sampling = plan.layout(name), plan.experiments[name].sampling
    paths = sorted((path for path in plan.manifests(name) if path.exists()), key=lambda path: path.stat().st_mtime)
    manifests = {path: read_manifest(path) for path in paths}
    written_at = {manifest.identity: path.stat().st_mtime for path, manifest in manifests.items()}
    groups = [read_group(folder) for folder in current_groups(layout.chains, plan.groups(name), written_at)]
    if not groups:
        return Standing(groups, None, "", _verdict(layout, condition), condition)
    identity = groups[0].folder.parent.name
    ended = [m for m in manifests.values() if m.identity == identity and _satisfies(m, sampling)]
    if len(ended) < sampling.chain_groups:
        return Standing(groups, None, "", None, condition)
    # The posterior has as many draws of each group as the group with the fewest.
    fewest = min(ended, key=lambda m: m.num_draws)
    reason = str((fewest.stop or {}).get("reason", ""))
    verdict = _verdict(layout, condition, identity, min(fewest.num_draws, sampling.draws))
    return Standing(groups, fewest.num_draws, reason, verdict, condition)


def _satisfies(manifest: GroupManifest, sampling: SamplingSettings) -> bool:
    """Return whether the draws satisfy a configuration; a changed rule must be evaluated again."""
    if sampling.stop is None:
        return manifest.num_draws >= sampling.draws
    rule = {**sampling.stop.model_dump(mode="json"), "draws": sampling.draws}
    return manifest.stop is not None and manifest.stop.get("rule") == rule


def _verdict(layout: ExperimentLayout, condition: Condition, identity: str = "", num_draws: int = 0) -> Verdict | None:
    """Return the verdict, or None if results are damaged, or it is about other chains or another number of draws."""
    if condition.damage or not layout.verdict.exists():
        return None
    verdict = read_verdict(layout.verdict)
    about = layout.posterior / "zarr.json"
    of_posterior = read_json(about).get("attributes", {}).get("identity") if about.exists() else None
    is_about_these = verdict.num_draws == num_draws and of_posterior in (None, identity)
    return verdict if is_about_these or not identity else None


def _row(plan: Plan, name: str, standing: Standing, jobs: Sequence[QueuedJob], now: float) -> tuple[str, ...]:
    sampling, groups = plan.experiments[name].sampling, standing.groups
    alive = [g for g in groups if g.is_written(now)]
    # A running job of the queue may not have taken its lock yet.
    is_busy = bool(alive) or any(job.rule == "sample" and job.state == "RUNNING" for job in jobs)
    state = _state(standing, jobs, is_busy=is_busy) or ("begun" if plan.layout(name).folder.exists() else "not begun")
    of_phase = [g for g in groups if g.phase == standing.phase]
    rates = [g.per_second for g in groups if g.per_second]
    accepted = [g.acceptance for g in of_phase if g.acceptance is not None]
    commits = [g.last_commit for g in groups if g.last_commit is not None]
    left = _left(groups, sampling) if (is_busy or jobs) and standing.phase == "sample" else "-"
    return (
        name, state, standing.fit.text.lstrip("✗!✓ ") if standing.fit else "-", str(sampling.chains), _draws(standing, sampling),
        f"{sum(rates) / sampling.chain_groups:.3g}" if rates else "-", left,
        f"{sum(accepted) / len(accepted):.2f}" if accepted else "-",
        *_convergence(None if is_busy else standing.verdict, [g for g in groups if g.phase == "sample"]),
        _where(groups, alive, jobs), _since(now - max(commits)) if commits else "-",
    )  # fmt: skip


def _draws(standing: Standing, sampling: SamplingSettings) -> str:
    """Return draws per chain, done and requested, with the reason if a rule ended sampling."""
    if standing.num_draws is not None and standing.reason:
        return f"{standing.num_draws}/{sampling.draws} {REASONS.get(standing.reason, standing.reason)}"
    if not standing.groups and standing.verdict is not None:
        return f"{standing.verdict.num_draws}/{sampling.draws}"
    done = sum(g.done for g in standing.groups if g.phase == standing.phase) // sampling.chain_groups
    if standing.phase == "sample" or not standing.groups:
        return f"{done}/{sampling.draws}"
    return f"{done}/{sampling.warmup} warmup"


def _state(standing: Standing, jobs: Sequence[QueuedJob], *, is_busy: bool) -> str:
    """Return the state of an experiment; empty before its first commit."""
    if is_busy:
        return "sampling" if standing.phase == "sample" else "warming up"
    if running := sorted({job.rule for job in jobs if job.state == "RUNNING"}):
        return f"running {', '.join(running)}"
    if jobs:
        return f"queued: {jobs[0].reason}"
    if standing.condition.damage:
        return "damaged"
    if standing.verdict is not None:
        return standing.verdict.verdict + (", older" if standing.condition.older else "")
    if standing.failed[0]:
        return f"failed: {standing.failed[0]}"
    if standing.num_draws is not None:
        return "sampled"
    if any(g.owner is not None for g in standing.groups):
        # The lock of a killed job.
        return "stale lock"
    return "stopped" if standing.groups else ""


def _left(groups: Sequence[GroupProgress], sampling: SamplingSettings) -> str:
    """Return the time until the slowest group is done, if all groups run now, including those not yet begun.

    With a stopping rule this is the time to the limit of draws, marked as an upper bound.
    """
    rates = [g.per_second for g in groups if g.per_second]
    if not rates:
        return "-"
    usual = sum(rates) / len(rates)
    times = [max(0, sampling.draws - (g.done if g.phase == "sample" else 0)) / (g.per_second or usual) for g in groups]
    times += [sampling.draws / usual] * (sampling.chain_groups - len(groups))
    return ("< " if sampling.stop is not None else "") + age(max(times))


def _convergence(verdict: Verdict | None, groups: Sequence[GroupProgress]) -> tuple[str, str, str]:
    """Return worst R-hat, smallest bulk ESS and divergences of the verdict, else values of the log density so far."""
    if verdict is not None:
        gates = {gate.name: gate.value for gate in verdict.gates if math.isfinite(gate.value)}
        shown = ("r_hat", formats.r_hat), ("ess_bulk", "{:.0f}".format)
        r_hat, ess = (text(gates[name]) if name in gates else "-" for name, text in shown)
        return r_hat, ess, "-" if verdict.num_divergences is None else str(verdict.num_divergences)
    if not groups or min(g.done for g in groups) < FEWEST_DRAWS:
        return "-", "-", "-"
    found = log_density_so_far(groups)
    return ("-", "-", "-") if found is None else (f"~{formats.r_hat(found[0])}", f"~{found[1]:.0f}", "-")


def _where(groups: Sequence[GroupProgress], alive: Sequence[GroupProgress], jobs: Sequence[QueuedJob]) -> str:
    """Return devices and machines of the running jobs, else of the last commits."""
    writing = {str(g.owner.get("host") or "an unknown host") for g in alive if g.owner is not None}
    hosts = writing | {j.node for j in jobs if j.state == "RUNNING"} or {g.host for g in groups}
    devices = sorted({g.device for g in groups})
    return " on ".join(part for part in (", ".join(devices), ", ".join(sorted(hosts - {""}))) if part) or "-"


def _since(seconds: float) -> str:
    """Return how long ago something happened; a value below 0 means that a clock was set back, or that another machine's is fast."""
    return f"{age(seconds)} ago" if seconds >= 0 else f"{age(-seconds)} ahead of this clock"


def age(seconds: float) -> str:
    """Return a duration in a single unit, rounded down.

    >>> age(5), age(150), age(10000), age(200000)
    ('5 s', '2 min', '2 h', '2 d')
    """
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if unit != "min" else 1):
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def failed_job(plan: Plan, name: str) -> tuple[str, str]:
    """Return the first job, in the order of the flow, whose last attempt failed, and its error; empty where none has.

    Attempts that were killed, or that another one may continue, do not count as failed. A job that has succeeded since has a new log.
    """
    for job in (each.job for each in plan.jobs_of(name)):
        said = _tail(job.log) if job.log.is_file() else ""
        found = last_error(said) if said.rstrip().endswith(NOT_AGAIN) else None
        if found is not None:
            return job.name, str(found)
    return "", ""


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", errors="replace")
