"""Data and draws that float32 rounds away warn or fail, by how much it takes from them; a constant likelihood warns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from bayesmesh.diagnostics.gates.precision import EdgeDraws, constant_gate, precision_gate, resolution_gate


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


@pytest.mark.parametrize(
    ("prior", "in_float32", "in_float64"),
    [
        (lambda g: g.beta(0.05, 0.05, 4000), "fail", "fail"),
        (lambda g: (1 - g.random(4000) ** 20) ** 20, "fail", "fail"),
        (lambda g: g.dirichlet([0.05, 0.05, 0.05], 4000)[:, 0], "fail", "warn"),
        (lambda g: g.beta(0.2, 0.2, 4000), "warn", "pass"),
        (lambda g: g.gamma(0.01, 1, 4000), "fail", "pass"),
        (lambda g: g.beta(0.5, 0.5, 4000), "pass", "pass"),
        (lambda g: g.gamma(0.2, 1, 4000), "pass", "pass"),
        (lambda g: g.exponential(1, 4000), "pass", "pass"),
        (lambda g: g.beta(2e7, 2, 4000), "pass", "pass"),
    ],
)
def test_mass_next_to_an_edge_that_the_dtype_does_not_resolve_is_named(
    prior: Callable[[np.random.Generator], np.ndarray], in_float32: str, in_float64: str
) -> None:
    """Numbers next to 1 are 6e-8 apart in float32 and 1e-16 in float64; next to 0 they end at 1e-38 and 1e-308."""
    draws = prior(np.random.default_rng(3)).reshape(4, 1000, 1)
    for dtype, expected in (("float32", in_float32), ("float64", in_float64)):
        edges = EdgeDraws(["p"])
        edges.add("p", draws.astype(dtype), ["p"], draws.std(axis=(0, 1)))
        gate = edges.gate()
        assert ("pass" if gate is None else gate.verdict) == expected, dtype
