"""A request to stop that comes before a job has begun: while modules are imported, there is nothing to commit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from bayesmesh.errors import NotFinished

__all__ = ["leaving_early"]

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@contextlib.contextmanager
def leaving_early() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 end the process with the exit code of `NotFinished` until somebody else handles them.

    By themselves they would end it as if it had been killed, and SIGUSR1 without a word. Nothing is done in a thread
    that is not the main one, which hears no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _leave) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End the process here and now: an exception might be caught by what is being imported."""
    name = signal.Signals(number).name
    # Not through logging, which the interrupted code may be in the middle of.
    os.write(2, f"error: asked to stop by {name} before anything was begun\n  remedy: run it again\n".encode())
    os._exit(NotFinished.exit_code)
