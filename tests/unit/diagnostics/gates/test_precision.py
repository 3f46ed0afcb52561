"""Data and draws that float32 rounds away warn or fail, by how much it takes from them; a constant likelihood warns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bayesmesh.diagnostics.gates.precision import constant_gate, precision_gate, resolution_gate


@pytest.mark.parametrize(
    ("rounded", "said"), [({"x": 0.02}, "pass"), ({"x": 0.3, "year": 0.2}, "warn"), ({"x": 0.3, "y": 7.0}, "fail")]
)
def test_fields_are_judged_by_the_worst(rounded: dict[str, float], said: str) -> None:
    gate = precision_gate(rounded)
    assert ("pass" if gate is None else gate.verdict) == said
    if said == "fail":
        assert gate is not None
        assert (
            "float32 rounds the values of 'y' by 7 standard errors of their mean, limit 0.1, and x by less"
            in gate.message
        )
        assert "compute: {dtype: float64}" in gate.message


@pytest.mark.parametrize(
    ("sd", "said"), [(0.2, "pass"), (0.02, "warn"), (0.006, "fail"), (0.0, "pass"), (np.nan, "pass")]
)
def test_draws_that_vary_by_less_than_the_steps_of_float32_are_named(sd: float, said: str) -> None:
    """The steps are 1/32 at 300,000; constants and draws that are not finite have gates of their own."""
    rows = [
        {"variable": "level", "index": "3", "label": "", "mean": 3e5, "sd": sd},
        {"variable": "b", "index": "", "label": "", "mean": 1.0, "sd": 1.0},
    ]
    gate = resolution_gate(pd.DataFrame(rows), ["level", "b"])
    assert ("pass" if gate is None else gate.verdict) == said
    assert resolution_gate(pd.DataFrame(rows), ["b"]) is None
    if gate is not None:
        assert gate.where == "level[3]"
        assert "less than the steps of 0.031 in float32 at 300000" in gate.message
        assert "1 of 2 values misses the limit of one step" in gate.message


def test_a_constant_log_likelihood_is_named() -> None:
    gate = constant_gate(np.full((4, 100), -12.5))
    assert gate is not None
    assert (gate.name, gate.verdict, gate.where) == ("likelihood", "warn", "log_likelihood")
    assert "the log likelihood is -12.5 in all draws" in gate.message
    assert "use the latents" in gate.message


def test_one_that_changes_in_a_single_draw_is_not() -> None:
    values = np.full((4, 100), -12.5)
    values[3, 99] += 1e-12
    assert constant_gate(values) is None
    assert constant_gate(np.full((4, 100), -np.inf)) is None
    assert constant_gate(np.full((4, 100), np.nan)) is None
    assert constant_gate(np.zeros((1, 1))) is None
