"""A stop request is recorded, devices get the grace period, and repeated signals have no effect."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from bayesmesh.sampling.sampling_interruption import GraceOver, Interruption


class Slow:
    """An array that is ready after a number of polls; device errors are raised when it is used."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_ready(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def block_until_ready(self) -> Slow:
        return self


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_is_noted_and_the_handlers_are_put_back(number: signal.Signals) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)}
    with Interruption(10) as interruption:
        assert not interruption.requested_by
        os.kill(os.getpid(), number)
        assert interruption.requested_by == number.name
    assert {n: signal.getsignal(n) for n in before} == before


def test_schedulers_repeat_their_signals_and_the_first_counts() -> None:
    with Interruption(10) as interruption:
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert interruption.requested_by == "SIGUSR1"


def test_a_second_ctrl_c_ends_at_once() -> None:
    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with Interruption(10) as interruption:

        def press_twice() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            # Another thread may be given the signal: two that nobody has handled yet would be one.
            while not interruption.requested_by:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

        with pytest.raises(KeyboardInterrupt):
            press_twice()
        assert interruption.requested_by == "SIGINT"
    signal.signal(signal.SIGINT, before)


def test_what_is_ready_within_the_grace_time_is_waited_for() -> None:
    with Interruption(10) as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        interruption.wait([Slow(3), {"a": Slow(0)}])


def test_what_takes_longer_is_not() -> None:
    with Interruption(0.05) as interruption:
        interruption.wait(Slow(10))
        os.kill(os.getpid(), signal.SIGTERM)
        start = time.monotonic()
        with pytest.raises(GraceOver):
            interruption.wait(Slow(10**9))
        assert 0.04 < time.monotonic() - start < 5


def test_a_signal_is_heard_while_devices_are_waited_for() -> None:
    class Signals(Slow):
        def is_ready(self) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().is_ready()

    with Interruption(0) as interruption, pytest.raises(GraceOver):
        interruption.wait(Signals(10**9))
