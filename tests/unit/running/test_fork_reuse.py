"""A fork stays only for the job that follows, and only while its code is unchanged."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bayesmesh.running import fork_reuse

SPEC = "results/digits/specs/{}-0123456789ab.json"


@pytest.mark.parametrize(("verb", "following"), [("compile", "sample"), ("sample", "assemble")])
def test_a_fork_may_stay_for_the_next_job_of_the_same_experiment_on_the_same_cores(verb: str, following: str) -> None:
    done = [verb, "--spec", SPEC.format(verb), "--later=", "--cores", "2"]
    assert fork_reuse.work_of(done, after=True) == fork_reuse.work_of(
        [following, "--spec", SPEC.format(following), "--cores", "2"]
    )
    others = [SPEC.format(following).replace("digits", "films"), "2"], [SPEC.format(following), "1"]
    for spec, cores in others:
        assert fork_reuse.work_of(done, after=True) != fork_reuse.work_of([following, "--spec", spec, "--cores", cores])


@pytest.mark.parametrize(
    "words", [[], ["status"], ["diagnose", "--spec", SPEC.format("diagnose")], ["sample", "--experiment", "digits"]]
)
def test_nothing_stays_for_other_jobs(words: list[str]) -> None:
    assert fork_reuse.work_of(words) == []
    assert fork_reuse.work_of(["assemble", "--spec", SPEC.format("assemble")], after=True) == []


def test_only_a_fork_stays_and_a_later_job_has_its_own_beginning_and_peak() -> None:
    code = (
        # A process that was not forked has the peak of who started it.
        "import os, resource; from bayesmesh.running import fork_reuse\n"
        "if os.fork(): os._exit(os.waitstatus_to_exitcode(os.wait()[1]))\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024\n"
        "fork_reuse.stay(); print(fork_reuse.is_fork(), fork_reuse.is_asked())\n"
        "fork_reuse.begin_job(); held = b'x' * 200 * 2**20; del held; fork_reuse.stay()\n"
        "print(fork_reuse.is_fork(), fork_reuse.is_asked(), fork_reuse.began_later()); before = peak()\n"
        "fork_reuse.begin_job(); print(fork_reuse.is_asked(), fork_reuse.began_later() is not None, before > 200 > peak())\n"
        "fork_reuse.MOST_BYTES = 1; fork_reuse.stay(); print(fork_reuse.is_asked())\n"
        "fork_reuse.check_before(lambda: False); print(fork_reuse.is_current())\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == ["False False", "True True None", "False True True", "False", "False"]
