"""Progress logs lines, and shows a bar only on a terminal."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable

import pytest

from bayesmesh.sampling.loop import progress
from bayesmesh.sampling.loop.progress import Progress

ShowOn = Callable[[io.StringIO], io.StringIO]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bayesmesh")
    return caplog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which only the test moves."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def show_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[io.StringIO], io.StringIO]:
    """Return a function that takes a stream for stderr; to be called in the test, since pytest sets its own before."""

    def show_on(stream: io.StringIO) -> io.StringIO:
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return show_on


def test_a_plain_line_at_the_end(lines: pytest.LogCaptureFixture, clock: list[float], show_on: ShowOn) -> None:
    stderr = show_on(io.StringIO())
    work = Progress("mnist group-000 sample", 100)
    for _ in range(4):
        clock[0] += 5
        work.advance(25, acceptance="0.81", divergences="0")
    work.close()
    assert lines.messages == [
        "mnist group-000 sample: 100 of 100 draws, 5/s, 0 s to go, acceptance 0.81, divergences 0"
    ]
    assert stderr.getvalue() == "", "no bar where nobody looks"


def test_a_line_every_half_minute_with_the_rate_of_this_run(
    lines: pytest.LogCaptureFixture, clock: list[float], show_on: ShowOn
) -> None:
    """Draws of an earlier run do not count towards the rate."""
    show_on(io.StringIO())
    work = Progress("a", 1000, done=900, unit="iteration")
    for _ in range(7):
        clock[0] += 10
        work.advance(10)
    assert [message.split(",")[0] for message in lines.messages] == [
        "a: 930 of 1000 iterations",
        "a: 960 of 1000 iterations",
    ]
    assert lines.messages[0] == "a: 930 of 1000 iterations, 1/s, 70 s to go"
