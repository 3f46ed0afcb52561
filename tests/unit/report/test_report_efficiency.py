"""Panels on the growth of effective draws and on their number by region."""

from __future__ import annotations

import numpy as np
import pytest

from bayesmesh.report.report_efficiency import draw_efficiency, draw_growth


@pytest.mark.parametrize("panel", [draw_growth, draw_efficiency])
def test_panels_name_the_quantity_and_need_finite_draws(panel) -> None:
    draws = np.random.default_rng(0).normal(size=(2, 60))
    drawn = panel(draws, "logits[3]", 400.0)
    assert "logits[3]" in drawn.note
    assert "logits[3]" in drawn.svg
    assert "--fail" in drawn.svg
    assert "--fail" not in panel(draws, "logits[3]", None).svg
    assert panel(draws[:, :10], "few", 400.0) is None
    draws[1, 3] = np.inf
    assert panel(draws, "odd", 400.0) is None
