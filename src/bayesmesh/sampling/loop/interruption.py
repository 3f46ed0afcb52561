"""Orderly stops: SIGTERM, SIGUSR1, SIGHUP and Ctrl-C in a sampling job."""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import FrameType
from typing import Any, NoReturn

import jax

from bayesmesh.errors import NotFinished

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)

COMMIT_SECONDS = 8.0
"""Seconds after the grace period for the last commit; then the process ends, whatever it is doing."""

_log = logging.getLogger("bayesmesh")


class GraceOver(Exception):
    """The devices did not finish within the grace period."""


class Interruption:
    """Record stop requests; a context manager for the main thread.

    The handlers only record. The loop checks between two calls of its program, which it makes in a thread and waits for by
    polling, so that handlers can run: a program with host callbacks returns from its call only when it has finished. Another
    thread hears of signals while the main thread compiles, reads or writes. It ends the process if the main thread has not
    done so `COMMIT_SECONDS` after the grace period. Schedulers repeat their signals, so a second SIGTERM has no effect; a
    second Ctrl-C ends the process immediately.

    Args:
        grace_seconds: how long to wait for the devices after the first request.
    """

    def __init__(self, grace_seconds: float) -> None:
        self.grace_seconds = grace_seconds
        self.requested_by = ""
        self._deadline = float("inf")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        self._calls = ThreadPoolExecutor(1, thread_name_prefix="program")
        heard, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        threading.Thread(target=self._watch, args=[heard], name="signals", daemon=True).start()
        # nohup starts a job with SIGHUP ignored.
        heeded = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heeded}
        self._bell_before = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._bell_before)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._bell)
        self._calls.shutdown(wait=False)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.requested_by:
            self.requested_by = signal.Signals(number).name
            self._deadline = time.monotonic() + self.grace_seconds

    def _watch(self, heard: int) -> None:
        """End the process after a second Ctrl-C, or if the main thread does not end it in time."""
        signals, num_interrupts = select.poll(), 0
        signals.register(heard)
        while signals.poll(self._milliseconds_left()):
            if not (number := os.read(heard, 1)):
                # The other end is closed: the work is done.
                os.close(heard)
                return
            self._note(number[0], None)
            num_interrupts += number[0] == signal.SIGINT
            if num_interrupts == 2:
                _end("ended by a second Ctrl-C", "run it again: it continues from the last commit, with the same draws")
        _end(
            f"asked to stop by {self.requested_by}, and what it was doing did not end within"
            f" {self.grace_seconds + COMMIT_SECONDS:g} s, so it was broken off",
            "run it again: it continues from the last commit; if the scheduler allows more time, raise sampling.grace_seconds",
        )

    def _milliseconds_left(self) -> float | None:
        return max(0, 1000 * (self._deadline + COMMIT_SECONDS - time.monotonic())) if self.requested_by else None

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

    def call[Result](self, program: Callable[..., Result], *arguments: object) -> Result:
        """Call a compiled program in another thread and return its result, whose arrays may not be ready yet.

        Raises:
            GraceOver: the job was asked to stop and the grace period has ended.
        """
        future: Future[Result] = self._calls.submit(program, *arguments)
        while not wait([future], timeout=0.1).done:
            self._check_deadline()
        return future.result()

    def wait(self, tree: object) -> None:
        """Wait until all arrays are ready.

        Raises:
            GraceOver: the job was asked to stop and the grace period has ended.
        """
        pause = 1e-4
        for leaf in jax.tree.leaves(tree):
            while not leaf.is_ready():
                self._check_deadline()
                time.sleep(pause)
                pause = min(2 * pause, 0.01)
        # This raises errors of the devices.
        jax.block_until_ready(tree)

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            raise GraceOver


def _end(message: str, remedy: str) -> NoReturn:
    """Log why and end the process without cleanup; commits are complete at any time."""
    # Ends the process in a second if the log cannot be written.
    signal.alarm(1)
    error = NotFinished(message, remedy)
    _log.error("error: %s", error)
    logging.shutdown()
    os._exit(error.exit_code)
