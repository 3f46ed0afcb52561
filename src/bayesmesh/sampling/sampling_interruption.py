"""Orderly stops: SIGTERM, SIGUSR1 and Ctrl-C in a sampling job."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Any

import jax

from bayesmesh.errors import NotFinished

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)


class GraceOver(Exception):
    """The devices did not finish within the grace period."""


class Interruption:
    """Record stop requests; a context manager for the main thread.

    The handlers only record. The loop checks between two calls of its program, and waits for the devices by polling, so
    that handlers can run. Schedulers repeat their signals, so a second SIGTERM has no effect; a second Ctrl-C ends the
    process immediately.

    Args:
        grace_seconds: how long to wait for the devices after the first request.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.requested_by = ""
        self._deadline = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            signal.signal(number, self._before[number])
        if not self.requested_by:
            self.requested_by = signal.Signals(number).name
            self._deadline = time.monotonic() + self.grace_seconds

    def check(self, label: str) -> None:
        """Raise if the job was asked to stop; called while no work needs to be finished first.

        Raises:
            NotFinished: a stop was requested.
        """
        if self.requested_by:
            raise NotFinished(
                f"{label}: asked to stop by {self.requested_by} before it drew anything",
                "run it again: it continues from the last commit, with the same draws",
            )

    def wait(self, tree: object) -> None:
        """Wait until all arrays are ready.

        Raises:
            GraceOver: the job was asked to stop and the grace period has ended.
        """
        pause = 1e-4
        for leaf in jax.tree.leaves(tree):
            while not leaf.is_ready():
                if time.monotonic() > self._deadline:
                    raise GraceOver
                time.sleep(pause)
                pause = min(2 * pause, 0.01)
        # This raises errors of the devices.
        jax.block_until_ready(tree)
