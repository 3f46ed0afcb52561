"""Ask the jobs on this machine to stop when Snakemake alone is asked; otherwise it would wait for their ends."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from types import FrameType
from typing import Any

import psutil  # type: ignore[import-untyped]


def pass_on_signals() -> None:
    """Pass stop requests on to the jobs of this process.

    Called after Snakemake has installed its own handlers, which still run.
    """
    end = signal.getsignal(signal.SIGTERM)
    for number, before in (
        (signal.SIGINT, signal.getsignal(signal.SIGINT)),
        (signal.SIGTERM, end),
        (signal.SIGHUP, end),
    ):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, functools.partial(_stop_jobs, before))


def _stop_jobs(before: Any, number: int, frame: FrameType | None) -> None:
    for process in psutil.Process(os.getpid()).children():
        # A second SIGTERM has no effect on a job.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    if callable(before):
        before(number, frame)
