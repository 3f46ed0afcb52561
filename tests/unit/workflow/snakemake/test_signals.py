"""A stop request to Snakemake alone reaches its jobs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

ALONE = """
import os, signal, subprocess, sys, time
from bayesmesh.workflow.snakemake.signals import pass_on_signals
# Not with `print`, which a handler must not enter while `print` below returns.
signal.signal(signal.SIGTERM, lambda number, frame: os.write(1, b"Snakemake's own handler\\n"))
pass_on_signals()
job = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
print("begun", flush=True)
# In short waits: a signal between the last check of the interpreter and a call of the system does not end that call.
while job.poll() is None:
    time.sleep(0.1)
print(job.returncode, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_stop_request_to_snakemake_alone_reaches_its_jobs(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        run.send_signal(number)
        printed, _ = run.communicate(timeout=90)
    assert sorted(printed.split("\n")) == ["", f"{-signal.SIGTERM}", "Snakemake's own handler"]
