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
    # In short waits: a signal between the last check of the interpreter and a call of the system does not end that call.
    for _ in range(600):
        time.sleep(0.1)
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
    command = [sys.executable, "-c", WAITS, verb]
    with subprocess.Popen(command, env=user_environment, stdout=-1, stderr=-1, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "begun\n"
        begun = time.monotonic()
        job.send_signal(number)
        _, said = job.communicate(timeout=90)
    assert job.returncode == code
    assert time.monotonic() - begun < 5
    if code == 75:
        assert said == f"error: asked to stop by {number.name} before any work began\n  remedy: run it again\n"
