"""A page begins with what was sampled, and says what its verdict is about."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from bayesmesh.report.diagnostics_tables import Coordinate
from bayesmesh.report.report_opening import describe_setup, say_scope


def coordinate(variable: str, r_hat: float, *, is_summary: bool = False) -> Coordinate:
    return Coordinate(variable, (), 0.0, 1.0, 0.1, r_hat, 500.0, 500.0, is_summary=is_summary)


@pytest.mark.parametrize(
    ("config", "counts", "said"),
    [
        ({}, {}, ""),
        ({"model": {"name": "softmax"}, "sampling": {"seed": 0}}, {}, "Model softmax · seed 0"),
        (
            {"data": {"source": "table", "files": ["a.csv", "b.csv"]}, "kernel": {"name": "hmc"}},
            {"training_rows": 1},
            "data table (a.csv and 1 more), 1 row · kernel hmc",
        ),
        ({"data": {"source": "digits"}}, {"training_rows": 1437}, "data digits, 1,437 rows"),
        (
            {"data": {"source": "table", "files": ["a.csv"]}},
            {"training_rows": 167, "rows_incomplete": 61},
            "data table (a.csv), 167 rows (61 more rows dropped for missing values)",
        ),
        ({"data": {"source": "own", "files": "a.csv"}}, {}, "data own"),
    ],
)
def test_what_was_sampled(config: dict[str, Any], counts: dict[str, Any], said: str) -> None:
    assert describe_setup(config, counts) == said


def test_the_largest_r_hat_beyond_the_gates_is_named() -> None:
    verdict: Any = SimpleNamespace(num_coordinates=SimpleNamespace(summaries=39, fixed=0), num_populations=0)
    latents = [coordinate("a", 1.01), coordinate("b", 1.02), coordinate("c", math.nan)]
    said = say_scope(verdict, [coordinate("s", 1.5, is_summary=True), *latents])
    assert said == (
        "The gates assess the sampling, by 39 monitored quantities. "
        "Among 2 coordinates of latents that are not monitored, the largest R-hat is 1.0200 (b)."
    )
    assert say_scope(verdict, latents[:1]).endswith(" R-hat of the one latent that is not monitored is 1.0100 (a).")
