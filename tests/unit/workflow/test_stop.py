"""A stop request during the first seconds of a job ends it with the exit code of an unfinished job."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

WAITS = """
import sys, time
from bayesmesh import cli
def run_verb(parser, words, started):
    print("begun", flush=True)
    time.sleep(60)
cli.run_verb = run_verb
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("verb", "number", "code"),
    [
        ("sample", signal.SIGUSR1, 75),
        ("sample", signal.SIGTERM, 75),
        # Stages that keep nothing until they have ended are ended.
        ("assemble", signal.SIGTERM, -signal.SIGTERM),
    ],
)
def test_a_signal_before_the_work_begins(
    user_environment: Mapping[str, str], verb: str, number: signal.Signals, code: int
) -> None:
    job = subprocess.Popen(
        [sys.executable, "-c", WAITS, verb], env=user_environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert job.stdout is not None
    assert job.stdout.readline() == "begun\n"
    begun = time.monotonic()
    job.send_signal(number)
    _, said = job.communicate(timeout=30)
    assert job.returncode == code
    assert time.monotonic() - begun < 5
    if code == 75:
        assert said == f"error: asked to stop by {number.name} before any work began\n  remedy: run it again\n"
