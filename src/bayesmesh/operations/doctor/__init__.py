"""Check whether this machine can run the workflow and say how to fix problems: a table of checks."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bayesmesh.operations.doctor.cluster import check_scheduler, check_site
from bayesmesh.operations.doctor.finding import BLOCKS, WARNS, Finding
from bayesmesh.operations.doctor.hardware import check_jax, check_machine
from bayesmesh.operations.doctor.storage import check_configuration, check_disk, check_mirror

CHECKS = {
    "machine": check_machine, "Slurm": check_scheduler, "JAX": check_jax, "disk": check_disk, "data": check_mirror,
    "config": check_configuration, "site": check_site,
}  # fmt: skip
"""Group -> its check, in the order of the table; it yields the fields of each finding after the group."""


def examine(results: Path, environ: Mapping[str, str], config: Path = Path("config")) -> list[Finding]:
    """Run all checks; takes seconds and leaves no files.

    Args:
        results: folder of results; may not exist yet.
        environ: environment variables of the jobs.
        config: folder of the configuration.
    """
    # In parallel, because a hanging driver or scheduler delays its check until the timeout.
    with ThreadPoolExecutor(len(CHECKS)) as pool:
        groups = pool.map(lambda check: list(check(results, environ, config)), CHECKS.values())
        return [Finding(group, *row) for group, rows in zip(CHECKS, groups, strict=True) for row in rows]


def render(findings: list[Finding], seconds: float | None = None) -> str:
    """Return the findings as a table, followed by the remedy of each problem.

    >>> print(render([Finding("disk", "free space", "90 GiB")]))
    disk  free space  ok  90 GiB
    <BLANKLINE>
    usable
    """
    cells = [(f.group, f.name, f.state, f.seen) for f in findings]
    widths = [max(len(row[i]) for row in cells) for i in range(3)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row[:3], widths, strict=True)), row[3]]) for row in cells]
    for state in (BLOCKS, WARNS):
        for finding in findings:
            if finding.state == state:
                lines += ["", f"{state}: {finding.group}, {finding.name}: {finding.seen}", f"  fix: {finding.remedy}"]
    blocking = sum(f.state == BLOCKS for f in findings)
    took = "" if seconds is None else f" (checked in {seconds:.1f} s)"
    verdict = f"not usable: {blocking} problem{'s' * (blocking > 1)} to fix" if blocking else "usable"
    return "\n".join([*lines, "", verdict + took])


def describe(results: Path, environ: Mapping[str, str], config: Path = Path("config")) -> tuple[str, int]:
    """Return the text to print and the exit code: 1 if a problem blocks every run."""
    start = time.perf_counter()
    findings = examine(results, environ, config)
    return render(findings, time.perf_counter() - start), int(any(f.state == BLOCKS for f in findings))


def run(arguments: argparse.Namespace) -> int:
    """Print the examination; return the exit code."""
    del arguments
    said, code = describe(Path("results"), os.environ)
    print(said)
    return code
