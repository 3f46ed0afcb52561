"""A stop request to Snakemake alone reaches its jobs."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

ALONE = """
import signal, subprocess, sys
from bayesmesh.workflow.snakemake.signals import pass_on_signals
signal.signal(signal.SIGTERM, lambda number, frame: print("Snakemake's own handler", flush=True))
pass_on_signals()
job = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
print("begun", flush=True)
print(job.wait(), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_stop_request_to_snakemake_alone_reaches_its_jobs(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        run.send_signal(number)
        printed, _ = run.communicate(timeout=30)
    assert sorted(printed.split("\n")) == ["", f"{-signal.SIGTERM}", "Snakemake's own handler"]
