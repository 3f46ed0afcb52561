"""Stop requests to jobs that have nothing to commit: during the imports of `sample`, and in all other stages."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from bayesmesh.errors import NotFinished

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


@contextlib.contextmanager
def exiting_on_signal(verb: str) -> Iterator[None]:
    """Let stop requests end the process of a stage.

    `sample` ends with the exit code of `NotFinished` until other handlers replace these: it may have draws of earlier jobs.
    Other stages end as by default, on Ctrl-C too, because `KeyboardInterrupt` would wait for compilations in other threads.
    Outside the main thread, which alone receives signals, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # nohup starts a job with SIGHUP ignored, and a shell one in the background with SIGINT ignored.
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    handlers = dict.fromkeys(heeded, _leave if verb == "sample" else signal.SIG_DFL)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process immediately: an imported module might catch an exception."""
    name = signal.Signals(number).name
    # Not through logging: the interrupted code may hold its lock.
    os.write(2, f"error: asked to stop by {name} before any work began\n  remedy: run it again\n".encode())
    os._exit(NotFinished.exit_code)
