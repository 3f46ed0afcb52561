"""A log likelihood that no latent changes warns."""

from __future__ import annotations

import numpy as np

from bayesmesh.diagnostics.gates.likelihood import constant_gate


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
