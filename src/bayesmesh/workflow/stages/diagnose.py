"""diagnose: compute R-hat, effective sample sizes and gates; a missed gate is reported, never raised."""

from __future__ import annotations

from bayesmesh.diagnostics.diagnosis import diagnose
from bayesmesh.store.ledger import Ledger
from bayesmesh.store.machine import usable_cores
from bayesmesh.workflow.jobs import Job


def run(job: Job, ledger: Ledger, cores: int | None = None) -> str:
    """Diagnose the posterior and return a line for the log."""
    layout = job.layout
    with ledger.phase("diagnose"):
        verdict = diagnose(layout.posterior, job.settings("gates"), layout, num_threads=cores or usable_cores())
    restarted = f"; {verdict.num_restarted} chains restarted from others in warmup" if verdict.num_restarted else ""
    return f"verdict {verdict.verdict}{''.join(f'; {gate.message}' for gate in verdict.missed)}{restarted}"
