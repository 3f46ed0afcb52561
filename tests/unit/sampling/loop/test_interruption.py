"""A stop request is recorded, devices get the grace period, and repeated signals have no effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import pytest

from bayesmesh.sampling.loop.interruption import GraceOver, Interruption


class Slow:
    """An array that is ready after a number of polls; device errors are raised when it is used."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_ready(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def block_until_ready(self) -> Slow:
        return self


SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda n: n.name)
def test_a_signal_is_noted_and_the_handlers_are_put_back(number: signal.Signals) -> None:
    before = {n: signal.getsignal(n) for n in SIGNALS}
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


BUSY = """
import hashlib, logging, signal, sys, time
from bayesmesh.sampling.loop import interruption as module
module.COMMIT_SECONDS = 0.1
logging.basicConfig(format="%(message)s")
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
# One call of C that takes an hour, without the interpreter's lock: no handler of Python runs meanwhile.
with module.Interruption(0.1 if sys.argv[1] == "grace" else 1000):
    print("begun", flush=True)
    time.sleep(0.5) if sys.argv[1] == "nohup" else hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)
"""


@pytest.mark.parametrize(
    ("how", "numbers", "message"),
    [
        ("grace", [signal.SIGHUP], "error: asked to stop by SIGHUP, and what it was doing did not end within 0.2 s"),
        (
            "twice",
            [signal.SIGINT, signal.SIGINT],
            "error: ended by a second Ctrl-C\n  remedy: run it again: it continues",
        ),
        ("nohup", [signal.SIGHUP], ""),
    ],
)
def test_a_process_ends_whatever_its_main_thread_does(
    user_environment: Mapping[str, str], how: str, numbers: list[signal.Signals], message: str
) -> None:
    command = [sys.executable, "-c", BUSY, how]
    with subprocess.Popen(command, env=user_environment, stdout=-1, stderr=-1, text=True) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "begun\n"
        for number in numbers:
            time.sleep(0.1)
            job.send_signal(number)
        _, said = job.communicate(timeout=30)
    assert job.returncode == (75 if message else 0)
    assert said.startswith(message)


def test_a_program_is_called_while_signals_are_heard() -> None:
    with Interruption(0.05) as interruption:
        assert interruption.call(lambda a, b: a + b, 1, 2) == 3
        with pytest.raises(ZeroDivisionError):
            interruption.call(lambda: 1 / 0)
        with pytest.raises(GraceOver):
            interruption.call(lambda: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.5)))


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
