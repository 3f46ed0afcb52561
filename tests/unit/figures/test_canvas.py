"""Ticks stand at round, even steps with labels of one precision, on every axis of any range."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.axes import Axes

from bayesmesh.figures.canvas import draw, log_axis

SIZE = (340, 190)


def labels(plot: Callable[[Axes], None]) -> tuple[list[str], list[str]]:
    """Return the labels of the ticks that lie on the horizontal and on the vertical axis."""
    found: list[list[str]] = []

    def noted(axes: Axes) -> None:
        plot(axes)
        axes.figure.draw_without_rendering()
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_majorticklocs(), axis.get_majorticklabels(), strict=True)
            found.append([label.get_text() for at, label in ticks if low <= at <= high])

    draw("some", noted, size=SIZE, label="some")
    return found[0], found[1]


@pytest.mark.parametrize("low", [-3.1, 0.0, 0.918, 100.0])
@pytest.mark.parametrize("width", [0.0087, 0.6, 1.3, 2.4, 4.9, 7.3, 60.0, 1234.0])
def test_linear_ticks_are_even_and_of_one_precision(low: float, width: float) -> None:
    for texts in labels(lambda axes: axes.plot([low, low + width], [low, low + width])):
        decimals = {len(text.partition(".")[2]) for text in texts}
        assert len(decimals) == 1, texts
        values = [float(text.replace("\N{MINUS SIGN}", "-").replace(",", "")) for text in texts]
        assert len(values) >= 2
        steps = np.diff(values)
        np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
        assert re.fullmatch("[125]0*", f"{steps[0]:.6g}".replace("0.", "").lstrip("0")), texts


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 2400, ["1", "10", "100", "1,000"]),
        (40, 700, ["50", "100", "200", "500"]),
        (310, 460, ["350", "400", "450"]),
        (0.002, 0.7, ["0.01", "0.1"]),
        (1e6, 3e9, ["1,000,000", "10,000,000", "100,000,000", "1,000,000,000"]),
    ],
)
def test_logarithmic_ticks_are_plain_numbers(low: float, high: float, expected: list[str]) -> None:
    def plot(axes: Axes) -> None:
        axes.plot([low, high], [0, 1])
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        log_axis(axes.xaxis)

    assert labels(plot)[0] == expected
