"""Stop requests during the imports, before a job has anything to commit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from bayesmesh.errors import NotFinished

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


@contextlib.contextmanager
def exiting_on_signal() -> Iterator[None]:
    """Let SIGTERM and SIGUSR1 end the process with the exit code of `NotFinished` until other handlers replace these.

    The default handlers would end the process as if it had been killed. Outside the main thread, which alone receives
    signals, this does nothing.
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
    """End the process immediately: an imported module might catch an exception."""
    name = signal.Signals(number).name
    # Not through logging: the interrupted code may hold its lock.
    os.write(2, f"error: asked to stop by {name} before any work began\n  remedy: run it again\n".encode())
    os._exit(NotFinished.exit_code)
