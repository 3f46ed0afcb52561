"""The profile for clusters without Slurm runs jobs through its scripts and Snakemake's generic executor."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from bayesmesh.running.fork_client import ADDRESS

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


NOTE = """
import atexit, sys
@atexit.register
def note():
    with open("commands", "a") as file:
        print(*sys.orig_argv, "bayesmesh.stages.stage_command" in sys.modules, file=file)
"""
"""Each process notes at its end its command, and whether it has done a stage by itself."""


@pytest.mark.nightly
def test_the_stages_of_a_job_are_forks_of_one_process(workspace: Any) -> None:
    environment = {name: value for name, value in workspace.environment.items() if name != ADDRESS}
    groups = ("--groups", "diagnose=two", "report=two", "--group-components", "two=1")
    with workspace.changed(workspace.root / "src" / "sitecustomize.py", NOTE):
        run = dataclasses.replace(workspace, environment=environment).snakemake
        # A variable for Python: processes of their own, and not forks of the tests' own server, which run no such file.
        done = run(*PROFILE, *groups, "--forcerun", "diagnose", "--", "digits", PYTHONUNBUFFERED="1")
    assert done.returncode == 0, done.stdout + done.stderr
    noted = (workspace.root / "commands").read_text().splitlines()
    for stage in ("diagnose", "report"):
        (line,) = (line for line in noted if f"/bayesmesh {stage} " in line)
        assert line.endswith(" False"), "it did the stage by itself, and not its fork"
    servers = {tuple(line.split()[-3:]) for line in noted if "bayesmesh.running.fork_server" in line}
    assert servers == {("diagnose", "report", "True")}, "one server, which prepares these two"
