"""status: the table, one line per experiment."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bayesmesh.experiment.plan import Plan
from bayesmesh.status.progress import GroupProgress, current_groups, read_group
from bayesmesh.status.queue import QueuedJob, queued_jobs
from bayesmesh.store.files import read_json

__all__ = ["age", "status_table"]

HEADER = (
    "experiment", "state", "chains", "draws", "per s", "left", "accept", "R-hat", "ESS", "divergences", "where",
    "last commit",
)  # fmt: skip
"""Draws are of each chain; R-hat and ESS the worst of the gates, `~` of the log density alone."""

PATIENCE = 5.0
"""Without lock and queue, a group whose last commit is older than so many usual ones is taken for stopped."""


def status_table(plan: Plan, now: float | None = None) -> str:
    """Return one line per experiment that has begun or is listed, and the path of the report.

    Reads only. Draws that are not there yet are told from the configuration: `draws` is "done/wanted".

    Raises:
        StoreError: a file of the store is damaged; names it.
    """
    now = time.time() if now is None else now
    jobs = queued_jobs(plan.experiments, Path.cwd())
    rows: list[tuple[str, ...]] = [HEADER]
    for name in plan.experiments:
        if name in plan.run.experiments or plan.layout(name).folder.exists():
            rows.append(_row(plan, name, jobs.get(name, []), now))
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    if any("~" in cell for row in rows for cell in row):
        lines += ["", "~ of the log density alone, from what is committed; the gates look at all summaries"]
    index = Path(plan.results) / "index.html"
    return "\n".join([*lines, "", f"report: {index.resolve()}" if index.exists() else "report: not written yet"])


def _row(plan: Plan, name: str, jobs: Sequence[QueuedJob], now: float) -> tuple[str, ...]:
    layout, sampling = plan.layout(name), plan.experiments[name].sampling
    groups = [read_group(folder) for folder in current_groups(layout.folder / "chains", sampling.chain_groups)]
    verdict = read_json(layout.verdict) if layout.verdict.exists() else None
    alive = [g for g in groups if g.writer is not None and g.writer.is_alive(now)]
    busy = _busy(groups, jobs, now) and not all(path.exists() for path in plan.manifests(name))
    phase = "sample" if any(g.phase == "sample" for g in groups) else "warmup"
    done = sum(g.done for g in groups if g.phase == phase) / sampling.chain_groups
    wanted = sampling.draws if phase == "sample" else sampling.warmup
    rates = [g.per_second for g in groups if g.per_second]
    if busy or jobs or alive:
        state = _at_work(phase, jobs, busy or bool(alive))
    elif verdict is not None:
        state = verdict["verdict"]
    elif groups:
        state = "sampled" if all(path.exists() for path in plan.manifests(name)) else _stopped(groups)
    else:
        state = "begun" if layout.folder.exists() else "not begun"
    left = _left(groups, sampling.draws, sampling.chain_groups) if phase == "sample" else None
    accepted = [g.acceptance for g in groups if g.acceptance is not None and g.phase == phase]
    commits = [g.last_commit for g in groups if g.last_commit is not None]
    r_hat, ess, divergences = _convergence(verdict, [g for g in groups if g.phase == "sample"], is_old=busy)
    return (
        name, state, str(sampling.chains), f"{int(done)}/{wanted}" + (" warmup" if phase == "warmup" and groups else ""),
        f"{sum(rates) / sampling.chain_groups:.3g}" if rates else "-", age(left) if left else "-",
        f"{sum(accepted) / len(accepted):.2f}" if accepted else "-", r_hat, ess, divergences,
        _where(groups, alive, jobs), f"{age(now - max(commits))} ago" if commits else "-",
    )  # fmt: skip


def _busy(groups: Sequence[GroupProgress], jobs: Sequence[QueuedJob], now: float) -> bool:
    """Whether anybody samples: by the queue, by a lock, or by how recent the last commit is."""
    if any(job.rule == "sample" and job.state == "RUNNING" for job in jobs):
        return True
    if any(g.writer is not None for g in groups):
        return any(g.writer is not None and g.writer.is_alive(now) for g in groups)
    return any(
        g.last_commit is not None and now - g.last_commit < max(30.0, PATIENCE * (g.commit_seconds or 0.0))
        for g in groups
    )


def _at_work(phase: str, jobs: Sequence[QueuedJob], busy: bool) -> str:
    if busy:
        return "sampling" if phase == "sample" else "warming up"
    running = sorted({job.rule for job in jobs if job.state == "RUNNING"})
    if running:
        return f"running {', '.join(running)}"
    return f"queued: {jobs[0].reason}" if jobs else "sampling"


def _stopped(groups: Sequence[GroupProgress]) -> str:
    """Nobody is at work: a lock that is left belongs to a job that was killed."""
    return "stale lock" if any(g.writer is not None for g in groups) else "stopped"


def _left(groups: Sequence[GroupProgress], draws: int, num_groups: int) -> float | None:
    """Seconds until the slowest group is done, were all at work; groups that have not begun count from their start."""
    rates = [g.per_second for g in groups if g.per_second]
    if not rates:
        return None
    usual = sum(rates) / len(rates)
    times = [max(0, draws - (g.done if g.phase == "sample" else 0)) / (g.per_second or usual) for g in groups]
    times += [draws / usual] * (num_groups - len(groups))
    return max(times)


def _convergence(
    verdict: dict[str, Any] | None, groups: Sequence[GroupProgress], *, is_old: bool
) -> tuple[str, str, str]:
    """Worst R-hat, least bulk ESS and divergences: of the verdict, else R-hat and ESS of the log density so far."""
    if verdict is not None and not is_old:
        gates = {g["name"]: g["value"] for g in verdict["gates"]}
        shown = ("r_hat", ".4f"), ("ess_bulk", ".0f")
        r_hat, ess = ("-" if gates.get(k) is None else format(gates[k], digits) for k, digits in shown)
        return r_hat, ess, str(verdict["num_divergences"])
    if not groups or min(g.done for g in groups) < 8:
        return "-", "-", "-"
    # Only now, because the imports take most of a second.
    from bayesmesh.status.convergence import log_density_so_far

    r_hat_now, ess_now = log_density_so_far(groups)
    return f"~{r_hat_now:.3f}", f"~{ess_now:.0f}", "-"


def _where(groups: Sequence[GroupProgress], alive: Sequence[GroupProgress], jobs: Sequence[QueuedJob]) -> str:
    """Devices and machines: of those at work, else of the last commits."""
    hosts = {g.writer.host for g in alive if g.writer is not None} | {j.node for j in jobs if j.state == "RUNNING"}
    hosts = hosts or {g.host for g in groups}
    devices = sorted({g.device for g in groups})
    return " on ".join(part for part in (", ".join(devices), ", ".join(sorted(hosts - {""}))) if part) or "-"


def age(seconds: float) -> str:
    """Return a time in its largest whole unit.

    >>> age(5), age(150), age(10000), age(200000)
    ('5 s', '2 min', '2 h', '2 d')
    """
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size * (2 if unit != "min" else 1):
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
