"""Holds a sampler right before a commit, so that a test can disturb it there however fast the machine is.

A workspace's jobs run a copy of this file at the start of Python, under the name ``sitecustomize``. It knows nothing of
the package but the names of its markers. In the folder that the job works in

``hold``     holds numbers of draws, rising: the sampler is held once that many are committed, at each of them once
``held-N``   says that it is held at the N-th of them, and in which process
``go-N``     lets it go on; so does SIGTERM, which its handler has then noted
``swell-N``  has it take more memory than its job may have, until it is killed
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MARKER = re.compile(r"/commits/sample-\d+-(\d+)\.json$")
SWELL_MB, STEP_MB = 3000, 250
POLL_SECONDS = 0.02

told_to_stop = threading.Event()


def note_sigterm(register: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `signal.signal`: what handles SIGTERM is followed by a note that it did."""

    def wrapped(number: int, handler: Any) -> Any:
        if number != signal.SIGTERM or not callable(handler):
            return register(number, handler)

        def handle_and_note(number: int, frame: Any) -> None:
            try:
                handler(number, frame)
            finally:
                told_to_stop.set()

        return register(number, handle_and_note)

    return wrapped


def before_rename(event: str, arguments: tuple[Any, ...]) -> None:
    """Hold the thread that is about to give a marker its name, where that is wanted."""
    if event != "os.rename" or not (marker := MARKER.search(str(arguments[1]))):
        return
    names = os.listdir(os.path.dirname(arguments[1]))
    committed = max((int(name[:-5].rpartition("-")[2]) for name in names if name.startswith("sample-")), default=0)
    if committed >= int(marker[1]):
        return
    for number, draws in enumerate(Path("hold").read_text().split()):
        if committed >= int(draws) and not Path(f"held-{number}").exists():
            partial = Path(f".held-{number}")
            partial.write_text(str(os.getpid()))
            partial.rename(f"held-{number}")
            wait_at(number)


def wait_at(number: int) -> None:
    """Wait until the test lets the sampler go, or the scheduler has told it to stop."""
    while not (told_to_stop.is_set() or Path(f"go-{number}").exists()):
        if Path(f"swell-{number}").exists():
            swollen = [b"x" * (STEP_MB << 20) for _ in range(SWELL_MB // STEP_MB)]
            while swollen:
                time.sleep(1)
        time.sleep(POLL_SECONDS)


if len(sys.orig_argv) > 2 and sys.orig_argv[1].endswith("/bayesmesh") and sys.orig_argv[2] == "sample":
    signal.signal = note_sigterm(signal.signal)
    sys.addaudithook(before_rename)
