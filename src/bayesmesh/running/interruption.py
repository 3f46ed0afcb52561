"""Leaving in good order: what SIGTERM, SIGUSR1 and Ctrl-C mean to a job that samples."""

from __future__ import annotations

import logging
import signal
import time
from types import FrameType, TracebackType
from typing import Any

import jax

from bayesmesh.errors import NotFinished

__all__ = ["GraceOver", "Interruption"]

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
_log = logging.getLogger("bayesmesh")


class GraceOver(Exception):
    """What runs on the devices did not finish within the time that was left."""


class Interruption:
    """Notes a request to stop, as a context manager of the main thread.

    A handler only notes; the loop looks between two calls of its program, and waits for the devices in a way that
    lets the handler run. Schedulers repeat their signals, so a second SIGTERM changes nothing; a second Ctrl-C ends
    the process at once.

    Args:
        grace_seconds: time between the first request and the moment at which nothing is waited for any more.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.requested_by = ""
        self._deadline = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(number, self._before[number])
        if not self.requested_by:
            self.requested_by = signal.Signals(number).name
            self._deadline = time.monotonic() + self.grace_seconds

    def check(self, label: str) -> None:
        """Raise when the job was asked to stop, while nothing has been begun that must be brought to an end.

        Raises:
            NotFinished: it was.
        """
        if self.requested_by:
            raise NotFinished(
                f"{label}: asked to stop by {self.requested_by} before it drew anything",
                "run it again: it goes on from what is committed, to the same draws",
            )

    def wait(self, tree: Any) -> None:
        """Wait until all arrays are there.

        Raises:
            GraceOver: the job was asked to stop, and the time for that is over.
        """
        pause = 1e-4
        for leaf in jax.tree.leaves(tree):
            while not leaf.is_ready():
                if time.monotonic() > self._deadline:
                    raise GraceOver
                time.sleep(pause)
                pause = min(2 * pause, 0.01)
        # Errors of the devices are raised here.
        jax.block_until_ready(tree)
