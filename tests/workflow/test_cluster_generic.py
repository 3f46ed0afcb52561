"""The profile for clusters without Slurm runs jobs through its scripts and Snakemake's generic executor."""

from __future__ import annotations

import os
from typing import Any

IS_NIGHTLY = "BAYESMESH_NIGHTLY" in os.environ
PROFILE = ("--profile", "profiles/cluster-generic", "--latency-wait", "5", "--seconds-between-status-checks", "1")


def test_a_job_is_submitted_and_followed_to_its_end(workspace: Any) -> None:
    """One job; in the nightly run all of an experiment, one after the other."""
    verdict = workspace.results / "digits" / "diagnostics" / "verdict.json"
    before = verdict.read_text()
    workspace.set("digits", "gates", {"r_hat": 5.0})
    targets = ["digits", "--forceall"] if IS_NIGHTLY else ["results/digits/diagnostics/verdict.json"]
    done = workspace.snakemake(*PROFILE, *targets)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "with external jobid" in done.stderr, "nothing was submitted"
    assert verdict.read_text() != before
    jobs = list((workspace.root / ".snakemake" / "cluster-jobs").iterdir())
    assert len(jobs) == 1 or IS_NIGHTLY
    assert {(job / "code").read_text().strip() for job in jobs} == {"0"}
